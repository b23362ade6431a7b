"""Training templates about making, growing and moving. Data only, in the notation of `math_templates`."""

WORK_TEMPLATES = """
# brick_wall: color=COLOR a=3-9 b=10-60 c=5-90
? A mason lays {a} rows of {one_color} bricks with {b} bricks in every row. At night a storm knocks {c}
  bricks off the wall. How many bricks are still in place [the next morning|after the storm]?
? {name} builds a wall from {one_color} bricks. There are {a} rows of {b} bricks, but {c} of the bricks turn
  out to be cracked and are taken out. How many bricks stay in the wall?
s = a * b: The wall has {eq} bricks.
t = s - c: That leaves {eq} bricks.

# garden_hose: a=24-99 b=2-9 c=2-40
? {name} cuts a garden hose of {a} meters into {b} equal parts. To one of these parts {she} joins an old
  hose that is {c} meters long. How many meters long is the joined hose?
? A hose of {a} meters is cut into {b} parts of the same length. {name} takes one part and [adds|joins to
  it] an old hose of {c} meters. How many meters does {her} new hose measure?
s = a / b: Each part is {eq} meters long.
t = s + c: With the old hose it is {eq} meters long.

# milk_cans: day=DAY a=10-80 b=10-80 c=2-9 d=10-60
? On {one_day} the {d} cows of {name} give {a} liters of milk in the morning and {b} liters in the evening.
  {She} fills the milk into {c} cans, the same amount in each. How many liters are in one can?
s = a + b: The cows give {eq} liters in all.
t = s / c: One can holds {eq} liters.

# mail_sorting: building=BUILDING a=30-99 b=3-50 c=3-60
? A bag in the mail room of the {one_building} holds {a} letters. {name} takes out {b} letters for the boss,
  and later a driver puts {c} letters into the bag. How many letters does the bag hold now?
? {name} works in the mail room of the {one_building}. Of {a} letters in a bag {she} hands {b} to the boss,
  and then {c} new letters are thrown in. How many letters are in the bag after that?
s = a - b: After the boss {eq} letters are left.
t = s + c: With the new ones there are {eq} letters.

# typing_speed: a=20-95 b=3-40 c=2-9 d=18-70
? {name} is {d} years old and can type {a} words per minute. With a sore hand {she} types {b} words per
  minute fewer. {She} works with the sore hand for {c} minutes. How many words does {name} type in this
  time?
s = a - b: With the sore hand {name} types {eq} words per minute.
t = s * c: In that time {she} types {eq} words.

# pipe_layers: a=6-60 b=2-9 c=2-9
? A team lays {a} meters of pipe per hour and works for {b} hours. The pipe is shared by {c} houses, and
  each house pays for an equal part of it. How many meters of pipe does one house pay for?
? In {b} hours a team lays pipe at {a} meters an hour. The work is paid by {c} houses, and each of them pays
  for an equal part of the pipe. How many meters does one house pay for?
s = a * b: The team lays {eq} meters.
t = s / c: Each house gets {eq} meters.

# seed_trays: item=FLOWER box=BOX a=2-9 b=2-12 c=2-9
? {name} grows {item} to sell them in spring. {She} has {a} benches, and on each bench are {b} {box}. There
  are {c} {item} in each {one_box}. How many {item} does {name} grow?
? In a glass house {name} puts {c} {item} into each {one_box}. Every bench has room for {b} {box}, and there
  are {a} benches in the house. How many {item} does the house hold when it is full?
s = a * b: There are {eq} {box}.
t = s * c: In all there are {eq} {item}.

# oil_barrels: a=40-99 b=4-40 c=4-40 d=2-60
? A barrel that weighs {d} kilograms when empty holds {a} liters of oil. A mechanic fills {b} liters into a
  tractor and {c} liters into a truck. How many liters of oil stay in the barrel?
s = a - b: After the tractor there are {eq} liters.
t = s - c: After the truck {eq} liters are left.

# wood_pile: item=TREE a=24-99 b=3-9 c=2-15
? A worker cuts down {b} {item} of equal size and gets {a} logs, the same number from each of them. {name}
  takes home the logs of a single tree and burns {c} of these logs. How many logs does {name} have left?
s = a / b: One tree gives {eq} logs.
t = s - c: So {name} has {eq} logs left.

# repair_shop: item=GOODS a=4-30 b=4-30 c=2-9 d=3-60
? In a repair shop {name} fixes {a} {item} a day and {other} fixes {b} a day. They work for {c} days, and
  before that {d} {item} were already done. How many {item} are done in the end?
? {name} and {other} fix {item}, {a} and {b} of them a day. They keep on for {c} days. When they began, {d}
  {item} were done. How many {item} are ready after these days?
s = a + b: Together they fix {eq} {item} a day.
t = s * c: In these days they fix {eq} {item}.
u = t + d: In the end {eq} {item} are done.

# water_tank: a=3-9 b=10-50 c=2-9 d=3-30
? A pump fills a tank with {b} liters per minute for {a} minutes. Then a farmer waters {c} fields from the
  tank and needs {d} liters for each field. How many liters of water are left in the tank?
? Each of {c} fields needs {d} liters of water. The farmer takes it from a tank that was filled for {a}
  minutes with {b} liters a minute. How many liters does the tank hold when all the fields are done?
s = a * b: The tank gets {eq} liters.
t = c * d: The fields need {eq} liters.
u = s - t: That leaves {eq} liters.

# shipping_boxes: item=GOODS box=BOX a=30-99 b=4-40 c=2-9 d=2-9
? A warehouse has {a} {item}, and {b} of them are sent back. The others are packed into {box} of {c} {item}
  each, and each {one_box} costs {d} stamps to mail. How many stamps does the warehouse need?
s = a - b: The warehouse packs {eq} {item}.
t = s / c: They fill {eq} {box}.
u = t * d: In all it needs {eq} stamps.

# tailor_cloth: item=CLOTHES color=COLOR a=3-9 b=8-40 c=5-50 d=2-9
? A tailor has {a} rolls of {one_color} cloth with {b} meters on each roll. {She} uses {c} meters for
  curtains, and from the rest {she} sews {item} that need {d} meters each. How many {item} can the tailor
  sew?
? {c} meters of {one_color} cloth are needed for curtains. A tailor has {a} rolls of {b} meters and makes
  {item} from what is left, with {d} meters for each of them. How many {item} can be made?
s = a * b: The rolls have {eq} meters.
t = s - c: After the curtains {eq} meters are left.
u = t / d: That is enough for {eq} {item}.

# road_signs: a=24-99 b=3-9 c=2-20 d=2-9
? A crew of {b} workers puts up {a} road signs in one day, each worker the same number. Then {name} joins
  them, and {she} puts up {c} signs a day more than any other worker. How many signs does {name} put up in
  {d} days?
s = a / b: Each worker puts up {eq} signs a day.
t = s + c: {name} puts up {eq} signs a day.
u = t * d: In these days {name} puts up {eq} signs.

# apple_juice: item=FRUIT drink=DRINK a=20-90 b=20-90 c=2-9 d=2-20
? {name} has {a} {item} from the tree and {b} from the market. {She} needs {c} of them to fill one
  {one_drink} with juice and uses them all. Then {d} of the full {drink} are drunk. How many full {drink}
  are left?
s = a + b: In all {name} has {eq} {item}.
t = s / c: They fill {eq} {drink}.
u = t - d: After that {eq} {drink} are left.

# night_train: a=3-9 b=10-50 c=5-60 d=5-60
? A night train has {a} cars with {b} beds in each car. In the first city {c} people take a bed, and in the
  second city {d} more people do so. How many beds are free after the second city?
? There are {a} cars in a night train and {b} beds in a car, all empty at first. {c} people get in at the
  first stop and {d} people at the next one, and all go to bed. How many beds are still empty?
s = a * b: The train has {eq} beds.
t = s - c: After the first stop {eq} beds are empty.
u = t - d: That leaves {eq} empty beds.

# mountain_hut: a=30-90 b=4-40 c=10-90 d=5-60 e=5-30
? A mountain hut {e} kilometers from the road keeps {a} kilograms of rice. The guests eat {b} kilograms, a
  helper carries up {c} kilograms, and mice spoil {d} kilograms. How many kilograms of rice are good now?
s = a - b: After the meals {eq} kilograms are left.
t = s + c: With the new rice there are {eq} kilograms.
u = t - d: Without the spoiled rice there are {eq} kilograms.

# car_wash: money=MONEY a=3-40 b=3-40 c=2-9 d=2-9
? At a car wash {name} washes {a} cars before lunch and {b} after lunch, for {c} {money} each. {She} shares
  the money equally with {her} friends, so that there are {d} equal parts. How many {money} is one part?
? {name} washes {a} cars, has lunch, and washes {b} more. Each car brings {c} {money}. All the money is
  divided equally among {d} people, one of them {name}. How many {money} does {name} get?
s = a + b: In all {name} washes {eq} cars.
t = s * c: The cars bring {eq} {money}.
u = t / d: Each part is {eq} {money}.

# two_bakers: item=BAKED a=3-9 b=10-40 c=3-9 d=10-40 e=2-9
? One baker puts {a} trays with {b} {item} each into the oven, and a second baker puts in {c} trays with {d}
  {item} each. All of the {item} go to {e} cafes in equal parts. How many {item} does each cafe get?
? Each of {e} cafes gets the same number of {item} from two bakers. One of them bakes {a} trays of {b}, and
  the other bakes {c} trays of {d}. How many {item} go to one cafe?
s = a * b: The first baker makes {eq} {item}.
t = c * d: The second baker makes {eq} {item}.
u = s + t: In all there are {eq} {item}.
v = u / e: Each cafe gets {eq} {item}.

# farm_feed: animal=FARM a=10-60 b=3-40 c=2-9 d=10-90 e=2-9
? A farmer has {a} {animal} and sells {b} of them. Each one that stays eats {c} kilograms of hay, and {d}
  kilograms are kept in reserve. The farmer brings the hay in {e} trips with equal loads. How many kilograms
  are in one load?
s = a - b: The farmer keeps {eq} {animal}.
t = s * c: They eat {eq} kilograms.
u = t + d: With the reserve it is {eq} kilograms.
v = u / e: Each load is {eq} kilograms.

# ship_cargo: box=BOX a=24-99 b=3-9 c=2-8 d=5-60 e=5-50 c<b
? A ship has {a} {box} in {b} holds, the same number in each. In one port workers empty {c} of the holds
  into a shed. The shed had {d} {box} before, and {e} {box} leave it by truck. How many {box} are in the
  shed?
s = a / b: Each hold has {eq} {box}.
t = s * c: The workers take out {eq} {box}.
u = t + d: In the shed there are {eq} {box}.
v = u - e: After the truck {eq} {box} are left.

# school_garden: item=VEGETABLE a=3-9 b=8-40 c=5-60 d=2-9 e=2-15
? Students plant {a} beds with {b} {item} in each. Snails eat {c} of the {item}. The rest are put into {d}
  baskets of equal size, and from one basket the cook takes {e} {item} for soup. How many {item} are left in
  this basket?
? The school garden has {a} beds and {b} {item} grow in each, but {c} of them are eaten by snails. {d}
  baskets get equally many of the others. The cook uses {e} from one basket. How many {item} does that
  basket still have?
s = a * b: The beds have {eq} {item}.
t = s - c: After the snails {eq} {item} are left.
u = t / d: Each basket gets {eq} {item}.
v = u - e: That leaves {eq} {item} in the basket.

# film_crew: a=10-60 b=3-30 c=2-9 d=5-60 e=5-60
? A film crew shoots {a} scenes in the first week and {b} scenes more than that in the second week. Every
  scene of the second week is shot {c} times. {d} of these shots are dark and {e} others are too loud. How
  many good shots of the second week are there?
s = a + b: The second week has {eq} scenes.
t = s * c: This makes {eq} shots.
u = t - d: Without the dark ones there are {eq} shots.
v = u - e: So {eq} good shots are left.

# pottery_class: item=GOODS a=3-9 b=8-40 c=2-9 d=3-30 e=5-60
? In a pottery class {a} adults make {b} {item} each, and {c} children make {d} {item} each. How many more
  {item} do the adults have than the children after they add {e} {item} from last year to their own?
s = a * b: The adults make {eq} {item}.
t = c * d: The children make {eq} {item}.
u = s + e: With last year the adults have {eq} {item}.
v = u - t: So the adults have {eq} {item} more.

# salt_mine: a=24-99 b=3-9 c=2-20 d=2-9 e=2-9
? {b} carts bring {a} kilograms of salt out of a mine, all with the same load. The miners then add {c}
  kilograms to the load of each cart, make {d} trips with one such cart, and fill the salt into {e} equal
  bins. How many kilograms does one bin get?
s = a / b: At first a cart carries {eq} kilograms.
t = s + c: Then a cart carries {eq} kilograms.
u = t * d: The trips bring {eq} kilograms.
v = u / e: Each bin gets {eq} kilograms.

# road_trip_fuel: a=4-40 b=4-40 c=2-9 d=10-90 e=10-99
? On a trip {name} drives {a} kilometers to a lake and {b} kilometers on to a city, and {she} does this {c}
  times. Then {she} drives {d} kilometers to see {other}. In all, {e} kilometers of road are wet. How many
  kilometers does {name} drive on dry road?
s = a + b: One round is {eq} kilometers.
t = s * c: All the rounds are {eq} kilometers.
u = t + d: With the last drive it is {eq} kilometers.
v = u - e: On dry road {name} drives {eq} kilometers.

# zoo_feeding: item=FISH a=30-95 b=3-40 c=2-9 d=2-9 e=3-80
? A zoo had {a} {item}, but {b} of them were moved to another zoo. The keeper puts the rest into {c} pools
  in equal groups. Each one in the first pool eats {d} grams of food, and {e} grams are left over. How many
  grams did the keeper bring to the first pool?
s = a - b: The zoo has {eq} {item} left.
t = s / c: Each pool gets {eq} {item}.
u = t * d: In the first pool they eat {eq} grams.
v = u + e: So the keeper brought {eq} grams.
"""

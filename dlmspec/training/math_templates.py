"""Templates of the word problems used in training. Data only; `math_problems` parses and fills it.

A blank line ends a template, and a line indented by two spaces continues the one before.
    # name: item=FRUIT a=12-60 b=3-9 b<a      nouns by list, given numbers by range, conditions on numbers
    ? text                                    a phrasing of the question; [x|y] picks one of the wordings
    s = a + b: sentence with {eq}             a step; {eq} becomes "34 + 17 = 51"
Fields: {item} is a noun's plural and {one_item} its singular; {name} and {other} are two people; {she},
{She}, {her}, {Her} (possessive) and {obj} (object) are the pronouns of {name}. The last step's result is the
answer. A given number that no step uses is a distractor.
"""

TRAINING_TEMPLATES = """
# orchard: item=FRUIT day=DAY a=12-70 b=12-70 c=5-60
? {name} picks {a} {item} on {one_day} and {b} more [the next day|a day later]. {She} then gives {c} of the
  {item} to {other}, who lives next door. How many {item} does {name} have left?
? On {one_day} {name} picked {a} {item}, and {she} picked {b} more [the day after|the next morning]. {other}
  asked for {c} {item} and got them. How many {item} did {name} still have?
s = a + b: {name} picks {eq} {item} in all.
t = s - c: After the gift {she} has {eq} {item}.

# bus_ride: a=20-70 b=3-40 c=3-40 d=12-90
? A bus leaves the station with {a} people on board for a trip of {d} minutes. At the first stop {b} people
  get off and {c} people get on. How many people are on the bus [now|after the stop]?
s = a - b: When some leave, {eq} people stay on the bus.
t = s + c: With the new ones there are {eq} people.

# book_shelves: item=READING a=3-9 b=8-40 c=5-60
? {name} [fills|has filled] {a} shelves with {item}, and each shelf holds {b} of them. Another {c} {item} lie
  on the desk by the window. How many {item} does {name} have altogether?
s = a * b: The shelves hold {eq} {item}.
t = s + c: Together with the desk that is {eq} {item}.

# broken_goods: item=GOODS box=BOX a=3-9 b=6-40 c=2-30
? A shop receives {a} {box} with {b} {item} in each {one_box}. While unpacking, {name} finds that {c} of the
  {item} are [broken|damaged] and sends them back. How many good {item} does the shop keep?
? {name} unpacks {a} {box} at the shop, and every {one_box} has {b} {item} inside. Sadly {c} of the {item} are
  broken and go [in the trash|back to the maker]. How many {item} can be sold?
s = a * b: The delivery has {eq} {item}.
t = s - c: Without the broken ones there are {eq} good {item}.

# pooled_snacks: item=BAKED a=8-60 b=8-60 c=2-9
? {name} brings {a} {item} to the picnic and {other} brings {b} {item}. They put them all [together|on one
  table] and share them equally among {c} children. How many {item} does each child get?
s = a + b: The picnic has {eq} {item}.
t = s / c: Each child gets {eq} {item}.

# keep_and_pack: item=CARD box=BOX a=30-99 b=4-30 c=2-9
? {name} owns {a} {item}. {She} keeps the {b} that {she} likes best and packs all the others into {c} {box},
  with the same number in each {one_box}. How many {item} go into one {one_box}?
s = a - b: {name} packs {eq} {item}.
t = s / c: One {one_box} gets {eq} {item}.

# wages_and_tip: money=MONEY building=BUILDING a=9-40 b=2-9 c=5-50
? {name} works at the {one_building} and earns {a} {money} an hour. Today {she} works for {b} hours and also
  gets {c} {money} [in tips|as a bonus]. How many {money} does {name} earn today?
s = a * b: The hours bring {eq} {money}.
t = s + c: With the extra money {name} earns {eq} {money}.

# change_back: item=CLOTHES money=MONEY a=2-9 b=3-24 c=25-99
? {name} goes to the store with {c} {money} in {her} pocket. {She} [buys|picks out and buys] {a} {item} that
  cost {b} {money} each. How many {money} does {name} have after paying?
s = a * b: The {item} cost {eq} {money}.
t = c - s: After paying, {name} has {eq} {money}.

# more_than_friend: item=CARD a=10-80 b=4-60
? {name} and {other} both collect {item}. {name} has {a} {item}, and {other} has {b} more {item} than {name}
  does. How many {item} do the two friends have [together|in total]?
s = a + b: {other} has {eq} {item}.
t = a + s: Together they have {eq} {item}.

# fewer_than_friend: item=TOY a=20-95 b=4-60 c=4-12
? {name}, who is {c} years old, has {a} {item} at home. {Her} friend {other} has {b} fewer {item} than {name}
  does. How many {item} do the two children have [together|between them]?
s = a - b: {other} owns {eq} {item}.
t = a + s: The two own {eq} {item} together.

# ride_then_walk: a=10-30 b=2-9 c=2-20
? {name} rides a bike at a steady speed of {a} kilometers per hour for {b} hours. After a [short|long] rest
  {she} walks another {c} kilometers to the lake. How many kilometers does {name} travel in all?
s = a * b: The bike ride is {eq} kilometers long.
t = s + c: With the walk {name} travels {eq} kilometers.

# team_helpers: a=16-96 b=2-9 c=2-9
? On sports day {a} students are split into {b} equal teams. Then {c} parents join each team [to help|as
  helpers] with the games on the field. How many people are in one team in the end?
s = a / b: Each team starts with {eq} students.
t = s + c: With the parents a team has {eq} people.

# rope_pieces: a=12-98 b=3-9 c=2-8 c<b
? {name} cuts a rope of {a} meters into {b} pieces of equal length. {She} uses {c} of the pieces to [tie up a
  boat|build a swing]. How many meters of rope does {name} use?
s = a / b: Each piece is {eq} meters long.
t = s * c: The pieces in use measure {eq} meters.

# pages_per_day: item=READING a=40-99 b=5-60 c=2-9
? One of the {item} on the list for school has {a} pages. {name} has read {b} pages so far and wants to finish
  the rest in {c} days, with the same number each day. How many pages must {she} read per day?
s = a - b: There are {eq} pages still to read.
t = s / c: That means {eq} pages per day.

# empty_seats: building=BUILDING a=4-9 b=8-40 c=20-99 d=5-95
? The hall of the {one_building} has {a} rows with {b} seats in each row. For the concert, which lasts {d}
  minutes, {c} people [come and sit down|take a seat]. How many seats stay empty?
s = a * b: The hall has {eq} seats.
t = s - c: That leaves {eq} empty seats.

# nested_packs: item=OFFICE box=BOX a=2-9 b=2-12 c=2-9
? {name} orders {item} for the whole school. {a} {box} arrive on {her} table. There are {b} packs in every
  {one_box} and {c} {item} in every pack. How many {item} arrive in all?
s = a * b: There are {eq} packs.
t = s * c: The packs hold {eq} {item}.

# bakery_boxes: item=BAKED box=BOX a=20-90 b=20-90 c=10-90 d=2-9
? A baker makes {a} {item} before sunrise and {b} more at noon. By the evening {c} {item} are sold, and the
  baker puts the rest in {d} {box}, the same number in each. How many {item} are in one {one_box}?
s = a + b: The baker makes {eq} {item}.
t = s - c: After the sales {eq} {item} remain.
u = t / d: Each {one_box} holds {eq} {item}.

# bags_and_crates: item=FRUIT a=2-9 b=4-30 c=2-9 d=10-50
? A truck carries {a} small bags with {b} {item} in each and {c} big crates with {d} {item} in each. The
  driver [brings all of it|takes everything] to the market. How many {item} does the truck carry?
s = a * b: The bags hold {eq} {item}.
t = c * d: The crates hold {eq} {item}.
u = s + t: The truck carries {eq} {item}.

# flower_rows: item=FLOWER other_item=FLOWER a=3-9 b=8-40 c=2-9 d=4-30
? In the park {name} plants {a} rows of {item} with {b} in each row. {She} also plants {c} rows of
  {other_item} with {d} in each row. How many more {item} than {other_item} does {name} plant?
s = a * b: {name} plants {eq} {item}.
t = c * d: {She} plants {eq} {other_item}.
u = s - t: The difference is {eq} plants.

# fair_wallet: money=MONEY a=40-99 b=4-40 c=4-40 d=5-60
? {name} takes {a} {money} to the fair. {She} spends {b} {money} on rides and {c} {money} on food. On the way
  home {other} pays back a debt of {d} {money}. How many {money} does {name} have now?
s = a - b: After the rides {name} has {eq} {money}.
t = s - c: After the food {she} has {eq} {money}.
u = t + d: With the debt paid back {she} has {eq} {money}.

# hen_eggs: a=4-9 b=5-30 c=2-20 d=2-9
? {name} keeps {a} hens, and each hen lays {b} eggs in a month. This month {c} eggs [crack|fall and crack].
  {name} puts the others into {d} baskets so that all have equally many. How many eggs are in each basket?
s = a * b: The hens lay {eq} eggs.
t = s - c: That leaves {eq} whole eggs.
u = t / d: Each basket has {eq} eggs.

# weekly_savings: item=GOODS money=MONEY a=4-30 b=3-9 c=10-80 d=20-95
? {name} already has {c} {money} and saves {a} {money} every week for {b} weeks. Then {she} buys some {item}
  for {her} room and pays {d} {money}. How many {money} does {she} have left?
s = a * b: {name} saves {eq} {money}.
t = s + c: With the money from before that is {eq} {money}.
u = t - d: After the purchase {eq} {money} are left.

# library_desk: item=READING a=40-99 b=5-50 c=5-50 d=5-50
? A shelf in the library holds {a} {item}. In the morning visitors borrow {b} of them, at noon {c} {item} are
  returned, and later {name} takes {d} {item} for {her} class. How many {item} are on the shelf now?
s = a - b: In the morning {eq} {item} stay on the shelf.
t = s + c: At noon there are {eq} {item}.
u = t - d: In the end there are {eq} {item}.

# three_rounds: a=10-80 b=10-80 c=10-80 d=30-99
? In a game {name} scores {a} points in round one, {b} points in round two and {c} points in round three.
  {other} [ends with|reaches] {d} points overall. By how many points does {name} win?
s = a + b: After two rounds {name} has {eq} points.
t = s + c: After three rounds {she} has {eq} points.
u = t - d: {name} wins by {eq} points.

# class_paper: item=OFFICE a=8-40 b=8-40 c=2-9 d=4-50
? A school club has {a} girls and {b} boys. Every child needs {c} {item} for the project, and the teacher
  wants {d} extra {item} [to be safe|in reserve]. How many {item} should the teacher order?
s = a + b: The club has {eq} children.
t = s * c: They need {eq} {item}.
u = t + d: With the extra ones the order is {eq} {item}.

# two_pumps: a=5-40 b=5-40 c=3-9 d=10-80
? One pump brings {a} liters of water per minute into a pool, and a second pump brings {b} liters per minute.
  Both run for {c} minutes, but {d} liters leak out. How many liters of water are in the pool?
s = a + b: Both pumps bring {eq} liters per minute.
t = s * c: In that time they bring {eq} liters.
u = t - d: After the leak the pool has {eq} liters.

# train_cars: a=24-99 b=3-9 c=2-20 d=2-8 d<b
? A train starts with {a} passengers spread evenly over {b} cars. At the next station {c} more people step
  into every car. {name} counts the people in {d} of these cars. How many people does {name} count?
s = a / b: At first a car has {eq} passengers.
t = s + c: Then a car has {eq} people.
u = t * d: In these cars {name} counts {eq} people.

# paint_cans: color=COLOR a=3-9 b=6-40 c=2-9 d=2-30
? A painter buys {a} cans of {one_color} paint with {b} liters in each can. The paint is divided equally among
  {c} rooms, and every room also gets {d} liters of primer. How many liters are used for one room?
s = a * b: The painter has {eq} liters of paint.
t = s / c: Each room gets {eq} liters of paint.
u = t + d: With the primer that is {eq} liters.

# parking_lot: building=BUILDING day=DAY a=20-90 b=10-80 c=10-80 d=5-60 e=3-30
? On {one_day} there are {a} cars in the lot of the {one_building}, which has {e} lamps. Then {b} cars arrive,
  {c} cars leave, and another {d} cars arrive. How many cars are in the lot at the end?
s = a + b: First the number rises to {eq} cars.
t = s - c: Then it falls to {eq} cars.
u = t + d: At the end there are {eq} cars.

# cousin_chain: item=CARD a=10-80 b=5-50 c=5-50
? {name} has {a} {item}. {Her} older cousin has {b} more {item} than {name}, and {her} younger cousin has {c}
  fewer {item} than the older cousin. How many {item} do the two cousins have together?
s = a + b: The older cousin has {eq} {item}.
t = s - c: The younger cousin has {eq} {item}.
u = s + t: The cousins have {eq} {item} together.

# cinema_tickets: money=MONEY a=2-9 b=8-30 c=2-9 d=3-20 e=60-99
? A group buys {a} adult tickets for {b} {money} each and {c} child tickets for {d} {money} each. The film
  they see is {e} minutes long. How many {money} does the group pay in total?
s = a * b: The adult tickets cost {eq} {money}.
t = c * d: The child tickets cost {eq} {money}.
u = s + t: In total the group pays {eq} {money}.

# helper_beads: color=COLOR a=40-99 b=4-50 c=2-9 d=4-60
? {name} has {a} {one_color} beads and uses {b} of them for a ring. {She} shares the rest equally among {c}
  friends. One friend, {other}, already had {d} beads. How many beads does {other} have now?
s = a - b: {name} shares {eq} beads.
t = s / c: Each friend gets {eq} beads.
u = t + d: {other} now has {eq} beads.

# market_stall: item=VEGETABLE other_item=VEGETABLE money=MONEY a=4-9 b=5-30 c=3-9 d=5-30 e=10-90
? At the market {name} sells {a} bags of {item} for {b} {money} each and {c} bags of {other_item} for {d}
  {money} each. {She} pays {e} {money} for {her} stall. How many {money} does {name} take home?
s = a * b: The {item} bring {eq} {money}.
t = c * d: The {other_item} bring {eq} {money}.
u = s + t: All the sales bring {eq} {money}.
v = u - e: After the fee {name} has {eq} {money}.

# bike_tour: a=8-40 b=8-40 c=2-9 d=10-90 e=2-9
? On a tour {name} rides {a} kilometers each morning and {b} kilometers each afternoon for {c} days. The full
  route minus the last {d} kilometers is drawn on {e} maps in equal parts. How many kilometers are on one map?
s = a + b: {name} rides {eq} kilometers a day.
t = s * c: The whole tour is {eq} kilometers long.
u = t - d: The maps cover {eq} kilometers.
v = u / e: One map shows {eq} kilometers.

# factory_shift: item=GOODS a=3-9 b=10-50 c=10-90 d=4-60 e=2-9
? In a factory {a} machines make {b} {item} each, and {c} more {item} are made by hand. The inspector rejects
  {d} of them, and the rest are loaded evenly into {e} trucks. How many {item} does each truck carry?
s = a * b: The machines make {eq} {item}.
t = s + c: With the work by hand there are {eq} {item}.
u = t - d: The inspector accepts {eq} {item}.
v = u / e: Each truck carries {eq} {item}.

# summer_camp: a=10-60 b=10-60 c=10-60 d=5-60 e=2-9
? Three buses bring {a}, {b} and {c} children to a summer camp. On the first evening {d} of the children go
  home sick, and the others sleep in {e} equal tents. How many children sleep in one tent?
s = a + b: The first two buses bring {eq} children.
t = s + c: All the buses bring {eq} children.
u = t - d: In the camp {eq} children stay.
v = u / e: One tent holds {eq} children.

# herd_changes: item=FARM a=30-90 b=5-60 c=5-60 d=5-60 e=5-60
? A farm has {a} {item} in spring. In May {b} {item} are born, in June {c} {item} are sold, in July the farmer
  buys {d} {item}, and in August {e} {item} go to another farm. How many {item} are left?
s = a + b: In May there are {eq} {item}.
t = s - c: In June there are {eq} {item}.
u = t + d: In July there are {eq} {item}.
v = u - e: In August {eq} {item} are left.

# party_drinks: drink=DRINK a=2-9 b=4-30 c=2-9 d=4-30 e=2-9
? For a party {name} buys {a} packs with {b} {drink} of juice each and {c} packs with {d} {drink} of water
  each. {She} sets them all out evenly on {e} tables. How many {drink} are on every table?
s = a * b: There are {eq} {drink} of juice.
t = c * d: There are {eq} {drink} of water.
u = s + t: Altogether there are {eq} {drink}.
v = u / e: Every table has {eq} {drink}.

# fish_tanks: item=FISH a=30-99 b=4-60 c=10-80 d=2-9 e=2-40
? A pet shop has {a} {item}. It sells {b} of them and then gets {c} new ones, and all are put into {d} tanks
  in equal groups. {name} adds {e} {item} to the first tank. How many {item} are in the first tank?
s = a - b: After the sale there are {eq} {item}.
t = s + c: With the new ones there are {eq} {item}.
u = t / d: Each tank gets {eq} {item}.
v = u + e: The first tank then has {eq} {item}.

# sewing_room: item=CLOTHES a=3-9 b=6-40 c=5-60 d=10-90 e=2-9
? {name} has {a} drawers with {b} buttons in each. {She} loses {c} buttons and buys {d} new ones. Then {she}
  sews the buttons on {item}, with {e} on each of them, until none remain. How many {item} get buttons?
s = a * b: The drawers hold {eq} buttons.
t = s - c: After the loss there are {eq} buttons.
u = t + d: With the new ones there are {eq} buttons.
v = u / e: That is enough for {eq} {item}.

# three_collectors: item=CARD a=20-80 b=5-50 c=5-50
? {name} has {a} {item} in an album. {other} has {b} {item} more than {name}, and their teacher has {c} {item}
  fewer than {other}. They show all of them at school. How many {item} do the three people show?
s = a + b: {other} has {eq} {item}.
t = s - c: The teacher has {eq} {item}.
u = a + s: {name} and {other} have {eq} {item}.
v = u + t: All three show {eq} {item}.

# parcel_round: building=BUILDING a=24-99 b=3-9 c=2-8 d=4-50 e=5-60 c<b
? Courier {name} has {a} parcels, sorted into {b} equal piles. {She} loads {c} of the piles into {her} van and
  drops {d} parcels at the {one_building}. Then {she} picks up {e} new parcels. How many parcels does {name}
  carry now?
s = a / b: Each pile has {eq} parcels.
t = s * c: The van starts with {eq} parcels.
u = t - d: After the stop {eq} parcels are in it.
v = u + e: Now {name} carries {eq} parcels.

# tree_rows: item=TREE a=24-99 b=3-9 c=2-20 d=2-8 e=5-60 d<b
? {name} plants {a} {item} in {b} equal rows. In each row {c} of the young {item} dry out in the heat. {other}
  waters {d} of the rows and also {e} trees near the gate. How many living trees does {other} water?
s = a / b: A row has {eq} {item}.
t = s - c: In a row {eq} {item} stay alive.
u = t * d: In these rows {other} waters {eq} {item}.
v = u + e: With those near the gate it is {eq} trees.
"""

"""Training templates about families, friends and schools. Data only, in the notation of `math_templates`."""

PEOPLE_TEMPLATES = """
# chess_club: a=12-60 b=3-30 c=2-9
? A chess club has {a} members, and {b} new members [join it|sign up] in the fall. Every member plays {c}
  games before winter. How many times does a member sit down to play, all members counted?
s = a + b: With the new ones there are {eq} members.
t = s * c: In all they play {eq} times.

# dinner_tables: building=BUILDING a=30-99 b=3-40 c=2-9
? For a dinner at the {one_building} {a} guests are invited, but {b} of them cannot come. The others sit at
  {c} tables, equally many at each. How many guests sit at one table?
? {b} of the {a} guests of a dinner at the {one_building} stay at home. Those who come are spread evenly
  over {c} tables. How many guests does one table have?
s = a - b: To the dinner {eq} guests come.
t = s / c: Each table has {eq} guests.

# age_puzzle: a=3-15 b=3-9 c=2-20
? {name} is {a} years old. {Her} grandmother is {b} times as old as {name}, and {her} grandfather is {c}
  years older than the grandmother. How many years old is the grandfather?
? The grandmother of {name} is {b} times as old as {she} is, and {name} is {a}. The grandfather is {c} years
  older than his wife. How many years old is he?
s = a * b: The grandmother is {eq} years old.
t = s + c: The grandfather is {eq} years old.

# shared_album: item=CARD a=24-99 b=2-9 c=2-10
? A group of {b} children gets {a} {item} and divides them equally. {name} is one of the children and loses
  {c} of {her} {item} on the way home. How many {item} does {name} have at home?
? {a} {item} are shared equally by {b} children. {name} takes {her} share, but {c} of the {item} fall [out
  of {her} bag|into a lake]. How many {item} does {name} still have?
s = a / b: Each child gets {eq} {item}.
t = s - c: After the loss {name} has {eq} {item}.

# stair_race: a=10-60 b=2-9 c=2-9
? In a tall house there are {a} steps from one floor to the next. {name} runs up {b} floors and does this
  {c} times in {her} training. How many steps does {she} run up?
s = b * c: {name} runs up {eq} floors.
t = s * a: In all {she} runs up {eq} steps.

# twin_gifts: item=TOY a=10-70 b=10-70 c=5-50
? For their birthday {name} gets {a} {item}, and {her} twin gets {b} {item}. The twins give {c} of the
  {item} to a home for children. How many {item} do the twins keep?
? Two twins are given {item} for their birthday: {name} gets {a} and {her} twin gets {b}. They decide that
  {c} of them should go to other children. How many {item} are left for the twins?
s = a + b: Together they have {eq} {item}.
t = s - c: So {eq} {item} are left.

# times_as_many: item=CARD a=4-60 b=2-9
? {name} has {a} {item} in a small tin. {other} has a big tin with {b} times as many {item} in it. They put
  both tins on the table. How many {item} do they have together?
? {other} owns {b} times as many {item} as {name}, who owns {a}. One day they lay all of their {item} out on
  the floor to look at them. How many {item} lie on the floor?
s = a * b: {other} has {eq} {item}.
t = a + s: Together they have {eq} {item}.

# dance_class: a=20-90 b=4-40 c=2-9 d=30-90
? A dance class of {a} people lasts {d} minutes. In the break {b} people go home, and each of the others
  brings {c} friends for the second part. How many friends come to the second part?
s = a - b: After the break {eq} people are left.
t = s * c: They bring {eq} friends.

# tent_groups: a=24-99 b=3-9 c=2-8 c<b
? A scout leader splits {a} scouts into {b} equal groups. The rain stops, and {c} of the groups [hike to the
  hill|go out to find wood], while the other groups stay to cook. How many scouts leave the camp?
? {a} scouts are in {b} groups of the same size. When the rain stops, {c} groups walk to the hill with
  {name}, their leader. How many scouts walk with {name}?
s = a / b: Each group has {eq} scouts.
t = s * c: So {eq} scouts leave the camp.

# club_teams: a=10-60 b=10-60 c=2-9 d=2-20
? A sports club with {a} girls and {b} boys forms {c} equal teams for a game in the park. Then {d} adults
  join every team. How many people does a team have?
s = a + b: The club has {eq} children.
t = s / c: Each team has {eq} children.
u = t + d: With the adults a team has {eq} people.

# letter_friends: a=2-9 b=4-30 c=2-9 d=4-30
? {name} writes letters to {a} friends abroad, {b} letters to each of them in a year. {other} writes to {c}
  friends, {d} letters to each. How many letters do the two of them write in that year?
? In one year {name} sends {b} letters to each of {her} {a} friends, and {other} sends {d} letters to each
  of {c} friends. How many letters do they send together in this year?
s = a * b: {name} writes {eq} letters.
t = c * d: {other} writes {eq} letters.
u = s + t: Together they write {eq} letters.

# family_ages: a=20-60 b=15-40 c=2-30
? {name} is {a} years old. {Her} daughter is {b} years younger than {name}, and {her} brother is {c} years
  older than {name}. How many years old are the daughter and the brother together?
? The daughter of {name} is {b} years younger than {name}, who is {a}. A brother of {name} is {c} years
  older than {name}. What is the sum of the ages of the daughter and this brother?
s = a - b: The daughter is {eq} years old.
t = a + c: The brother is {eq} years old.
u = s + t: Together they are {eq} years old.

# candy_hunt: item=BAKED a=8-60 b=8-60 c=5-40 d=2-9
? Two sisters hide {item} in the garden, {a} of them under bushes and {b} behind stones. The dog eats {c} of
  them. The children find all the others, and {d} children share them equally. How many {item} does one
  child get?
s = a + b: In all {eq} {item} are hidden.
t = s - c: After the dog {eq} {item} are left.
u = t / d: Each child gets {eq} {item}.

# story_hour: item=READING a=24-99 b=3-9 c=2-8 d=3-60 c<b
? A teacher sorts {a} {item} into {b} equal stacks. {name} and {her} friends read {c} of the stacks and then
  {d} more {item} that they find at home. How many {item} do they read?
s = a / b: One stack has {eq} {item}.
t = s * c: From the stacks they read {eq} {item}.
u = t + d: With those from home they read {eq} {item}.

# swim_laps: a=10-50 b=2-20 c=3-9 d=5-90
? {name} swims {a} laps each day and {other} swims {b} laps fewer than that. {other} swims for {c} days and
  then does {d} extra laps on the weekend. How many laps does {other} swim?
? Each day {other} swims {b} laps fewer than {name}, who swims {a}. After {c} such days {other} adds {d}
  laps in the lake. How many laps does {other} swim altogether?
s = a - b: {other} swims {eq} laps a day.
t = s * c: In these days {other} swims {eq} laps.
u = t + d: With the extra ones it is {eq} laps.

# theater_trip: building=BUILDING a=3-9 b=10-40 c=5-40 d=5-60
? {a} classes with {b} children each go to see a play at the {one_building}. There {c} children are ill and
  miss it, but {d} parents come along. How many people from the school see the play?
? A play at the {one_building} is shown to {a} classes. There are {b} children in each class. {c} of the
  children are ill that day, and {d} parents come with the others. How many people come to the play?
s = a * b: The classes have {eq} children.
t = s - c: Without the ill ones there are {eq} children.
u = t + d: With the parents {eq} people come.

# quiz_points: a=4-20 b=2-9 c=4-20 d=2-9 e=20-90
? In a quiz with {e} questions {name} gives {a} right answers that bring {b} points each. {other} gives {c}
  right answers that bring {d} points each. By how many points is {name} better than {other}?
s = a * b: {name} gets {eq} points.
t = c * d: {other} gets {eq} points.
u = s - t: So {name} is better by {eq} points.

# long_hair: a=24-90 b=3-20 c=2-9 d=2-9
? {name} has hair that is {a} centimeters long and cuts off {b} centimeters. In the next {c} months it grows
  by {d} centimeters per month. How many centimeters long is the hair then?
? The hair of {name} grows {d} centimeters each month. It is {a} centimeters long when the barber takes off
  {b} centimeters. How many centimeters long is it {c} months after that?
s = a - b: After the cut it is {eq} centimeters long.
t = c * d: In the months it grows by {eq} centimeters.
u = s + t: So then it is {eq} centimeters long.

# bread_for_camp: a=10-60 b=10-60 c=2-9 d=2-9
? At a camp {a} children and {b} adults want bread. Each person eats {c} slices, and one loaf is cut into
  {d} slices. How many loaves of bread does the camp need for this meal?
s = a + b: The camp has {eq} people.
t = s * c: They eat {eq} slices.
u = t / d: That means {eq} loaves.

# village_school: a=30-90 b=5-40 c=5-60 d=2-9 e=2-20
? A village school with {a} pupils says goodbye to {b} of them in summer, and {c} new pupils arrive. They
  form {d} classes of equal size. Later {e} pupils move into one of the classes. How many pupils are in that
  class then?
? In summer {b} of {a} pupils leave a school and {c} others come. The school makes {d} equal classes. {name}
  teaches one of them, and {e} more pupils move to it later. How many pupils does {name} teach then?
s = a - b: After the goodbye {eq} pupils are left.
t = s + c: With the new ones there are {eq} pupils.
u = t / d: Each class has {eq} pupils.
v = u + e: That class then has {eq} pupils.

# three_siblings: item=TOY a=5-40 b=2-9 c=3-60
? {name} has {a} {item}. {Her} older sister has {b} times as many {item}, and {her} brother has {c} fewer
  {item} than the sister. How many {item} do the three children have in all?
? The sister of {name} has {b} times as many {item} as {name}, and their brother has {c} fewer {item} than
  the sister. {name} has {a} {item}. What is the number of {item} of all three children?
s = a * b: The sister has {eq} {item}.
t = s - c: The brother has {eq} {item}.
u = a + s: {name} and the sister have {eq} {item}.
v = u + t: All three have {eq} {item}.

# wedding_seats: a=3-9 b=6-30 c=2-9 d=4-20 e=5-90
? For a wedding {name} sets up {a} long tables with {b} chairs each and {c} round tables with {d} chairs
  each. Only {e} chairs are still free when the music starts. How many chairs are taken by then?
s = a * b: The long tables have {eq} chairs.
t = c * d: The round tables have {eq} chairs.
u = s + t: In all there are {eq} chairs.
v = u - e: So {eq} chairs are taken.

# relay_teams: a=24-99 b=3-9 c=2-15 d=2-8 e=3-60 d<b
? {a} runners form {b} equal teams. Before the race {c} runners of each team hurt a leg and stop. {d} of the
  teams start in the morning, together with {e} guests. How many people run in the morning?
s = a / b: Each team has {eq} runners.
t = s - c: In a team {eq} runners are left.
u = t * d: The teams in the morning have {eq} runners.
v = u + e: With the guests {eq} people run.

# game_night: a=10-70 b=10-70 c=10-90 d=3-60 e=2-9
? {name} wins {a} points in the first game and {b} in the second. {other} wins {c} points in the first game
  and loses {d} of them in the second. They add up what they have and change every {e} points into one
  prize. How many prizes do they get?
s = a + b: {name} has {eq} points.
t = c - d: {other} has {eq} points.
u = s + t: Together they have {eq} points.
v = u / e: That is enough for {eq} prizes.

# street_party: drink=DRINK a=10-50 b=10-50 c=2-9 d=5-60 e=2-9
? {a} people from one street and {b} from the next hold a party. Each of them brings {c} {drink} of tea, and
  the mayor sends {d} {drink} more. {name} counts {e} hours of sun that day. How many {drink} of tea are
  there?
s = a + b: At the party there are {eq} people.
t = s * c: They bring {eq} {drink}.
u = t + d: In all there are {eq} {drink}.

# hospital_visits: a=2-9 b=10-50 c=10-60 d=2-9 e=2-20
? Nurse {name} sees {b} patients on each of {a} days and {c} patients on the weekend. All of these patients
  are then split equally among {d} doctors. One doctor sends {e} of them home. How many patients does this
  doctor still have?
? On each of {a} days {b} patients come to Nurse {name}, and {c} more come on the weekend. {d} doctors get
  equal numbers of them. Then one doctor lets {e} patients go home. How many patients are left with that
  doctor?
s = a * b: In these days {eq} patients come.
t = s + c: With the weekend there are {eq} patients.
u = t / d: Each doctor gets {eq} patients.
v = u - e: After that {eq} patients are left.

# pen_pals: color=COLOR a=20-95 b=3-40 c=2-9 d=2-9 e=2-30
? {name} has {a} {one_color} sheets of paper and ruins {b} of them. {She} shares the good ones equally among
  {c} children. {other} is one of them, cuts each sheet into {d} parts, and throws {e} parts away. How many
  parts does {other} keep?
s = a - b: {name} has {eq} good sheets.
t = s / c: Each child gets {eq} sheets.
u = t * d: {other} cuts them into {eq} parts.
v = u - e: So {other} keeps {eq} parts.
"""

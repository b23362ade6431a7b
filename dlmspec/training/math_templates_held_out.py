"""Templates of the word problems that training never sees. Data only, in the notation of `math_templates`.

They use the same operations, numbers of steps and word lists as the training templates, in other stories.
"""

HELD_OUT_TEMPLATES = """
# kite_string: a=15-80 b=5-60 c=5-50
? {name} lets a kite fly on {a} meters of string. The wind grows stronger, so {she} adds {b} meters of string,
  and later {she} pulls {c} meters back in. How many meters of string are out [now|at that time]?
s = a + b: The string grows to {eq} meters.
t = s - c: After that {eq} meters are out.

# museum_groups: a=3-9 b=8-40 c=10-90 d=20-95
? A museum with {d} paintings welcomes {a} school groups in one day. Each group has {b} children, and another
  {c} visitors come [alone|on their own]. How many visitors does the museum have that day?
s = a * b: The groups bring {eq} children.
t = s + c: Overall the museum has {eq} visitors.

# candle_wax: a=30-99 b=4-50 c=2-9
? {name} melts {a} grams of wax and spills {b} grams on the floor. {She} pours what is left into {c} equal
  molds [to make candles|for new candles]. How many grams of wax are in each mold?
s = a - b: {name} still has {eq} grams of wax.
t = s / c: Each mold gets {eq} grams.

# tower_blocks: color=COLOR a=10-80 b=4-60
? {name} builds a tower from {a} {one_color} blocks. The tower of {other} needs {b} blocks more than that.
  Both towers stand side by side on the carpet. How many blocks are in the two towers?
s = a + b: The tower of {other} has {eq} blocks.
t = a + s: The two towers have {eq} blocks.

# recipe_scaling: item=BAKED a=12-96 b=2-9 c=2-9
? A recipe for {b} trays of {item} needs {a} spoons of flour, the same for each tray. {name} wants to bake {c}
  trays [for the school fair|for {her} guests]. How many spoons of flour does {name} need?
s = a / b: One tray needs {eq} spoons of flour.
t = s * c: For all the trays {name} needs {eq} spoons.

# snow_shovel: money=MONEY a=3-9 b=5-30 c=5-60 d=2-9
? After the storm {name} clears {a} driveways and gets {b} {money} for each one. {She} spends {c} {money} on a
  new shovel and divides the rest equally among {d} jars. How many {money} are in each jar?
s = a * b: The work brings {eq} {money}.
t = s - c: After the shovel there are {eq} {money}.
u = t / d: Each jar gets {eq} {money}.

# choir_concert: a=8-40 b=8-40 c=2-9 d=4-60
? A choir has {a} high voices and {b} low voices. Each singer invites {c} guests to the concert, but {d} of
  the guests [cannot come|stay at home]. How many guests come to hear the choir?
s = a + b: The choir has {eq} singers.
t = s * c: They invite {eq} guests.
u = t - d: To the concert {eq} guests come.

# river_level: a=30-90 b=5-50 c=5-50 d=5-50
? A river is {a} centimeters deep at the bridge. Rain makes it rise by {b} centimeters, then it falls by {c}
  centimeters, and melting snow makes it rise by {d} centimeters. How many centimeters deep is it in the end?
s = a + b: The rain brings it to {eq} centimeters.
t = s - c: It then drops to {eq} centimeters.
u = t + d: In the end it is {eq} centimeters deep.

# photo_albums: a=2-9 b=10-50 c=2-9 d=6-40 e=4-20
? {name} has {a} old albums with {b} photos in each and {c} new albums with {d} photos in each. They stand on
  a shelf that is {e} years old. How many photos does {name} have in all the albums?
s = a * b: The old albums have {eq} photos.
t = c * d: The new albums have {eq} photos.
u = s + t: In all there are {eq} photos.

# battery_charge: a=60-99 b=4-40 c=4-40 d=5-60
? In the morning the battery of a robot can last {a} minutes. {name} uses it for {b} minutes, and {other} uses
  it for {c} minutes. Then a charger adds {d} minutes. For how many minutes can the robot run now?
s = a - b: After {name} it can run {eq} minutes.
t = s - c: After {other} it can run {eq} minutes.
u = t + d: With the charger it can run {eq} minutes.

# quilt_squares: color=COLOR a=24-99 b=3-9 c=2-20 d=2-8 d<b
? {name} cuts {a} {one_color} squares and lays them in {b} equal strips. To each strip {she} adds {c} squares
  with dots. {She} sews {d} such strips together for a quilt. How many squares does the quilt have?
s = a / b: A strip has {eq} squares at first.
t = s + c: With the dots a strip has {eq} squares.
u = t * d: The quilt has {eq} squares.

# clean_beach: box=BOX a=3-9 b=6-40 c=3-9 d=6-40 e=2-9
? At the beach {a} children each collect {b} pieces of trash, and {c} adults each collect {d} pieces. They
  sort all of it into {e} {box} with equal counts. How many pieces of trash are in each {one_box}?
s = a * b: The children collect {eq} pieces.
t = c * d: The adults collect {eq} pieces.
u = s + t: The whole group collects {eq} pieces.
v = u / e: Each {one_box} gets {eq} pieces.

# honey_season: a=3-9 b=8-40 c=10-80 d=5-60 e=2-9
? {name} has {a} beehives, and each one gives {b} spoons of honey. {She} still has {c} spoons from last year.
  {She} eats {d} spoons and pours the rest equally into {e} pots. How many spoons of honey are in one pot?
s = a * b: The hives give {eq} spoons.
t = s + c: With the old honey there are {eq} spoons.
u = t - d: After the meals {eq} spoons remain.
v = u / e: One pot holds {eq} spoons.

# ferry_stops: a=30-90 b=5-60 c=5-60 d=5-60 e=5-60
? A ferry leaves the harbor with {a} travelers. At the first island {b} go ashore and {c} come aboard. At the
  second island {d} go ashore and {e} come aboard. How many travelers are on the ferry then?
s = a - b: At the first island {eq} travelers remain.
t = s + c: The ferry sails on with {eq} travelers.
u = t - d: At the second island {eq} travelers remain.
v = u + e: Then {eq} travelers are on the ferry.

# two_printers: a=6-40 b=6-40 c=3-9 d=10-90 e=5-80
? One printer makes {a} pages per minute, and another makes {b} pages per minute. Both run for {c} minutes.
  {name} throws away {d} spoiled pages and adds {e} pages from home. How many pages does {name} have?
s = a + b: The printers make {eq} pages per minute.
t = s * c: Together they make {eq} pages.
u = t - d: Without the spoiled ones there are {eq} pages.
v = u + e: {name} has {eq} pages.

# stage_lights: building=BUILDING a=24-99 b=3-9 c=2-8 d=5-60 e=4-60 c<b
? The stage of the {one_building} has {a} lights on {b} equal bars. On {c} of the bars all lights are switched
  on, and {name} also turns on {d} lamps in the hall. Later {e} of them burn out. How many still shine?
s = a / b: A bar has {eq} lights.
t = s * c: On the stage {eq} lights are on.
u = t + d: With the hall {eq} lights are on.
v = u - e: In the end {eq} still shine.
"""

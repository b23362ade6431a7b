"""Training templates about buying, selling and money. Data only, in the notation of `math_templates`."""

TRADE_TEMPLATES = """
# sale_price: item=GOODS money=MONEY a=20-99 b=3-30 c=2-9
? A store normally sells {item} for {a} {money} each, but this week the price is {b} {money} lower. {name}
  buys {c} of them for {her} new home. How many {money} does {name} pay?
? The price of the {item} in a store was {a} {money} each until it fell by {b} {money}. {name} waits for
  that day and then [takes|buys] {c} of them. How many {money} does {she} pay in total?
s = a - b: The new price is {eq} {money}.
t = s * c: So {name} pays {eq} {money}.

# gift_wrap: item=TOY money=MONEY a=5-60 b=2-20 c=2-9
? One {one_item} costs {a} {money}, and wrapping it in nice paper costs {b} {money} more. {name} orders {c}
  wrapped {item} as gifts for {her} cousins. How many {money} does {name} need?
? {name} wants to give {item} to {c} cousins, one for each child. A single one costs {a} {money} plus {b}
  {money} for the [wrapping|ribbon and paper]. How much does {name} spend, in {money}?
s = a + b: One gift costs {eq} {money}.
t = s * c: For all the gifts {name} needs {eq} {money}.

# shared_bill: money=MONEY a=20-99 b=2-9 c=2-20
? In a small restaurant {b} friends share a bill of {a} {money} equally. One of them is {name}, who also
  leaves {c} {money} for the waiter. How many {money} does {name} pay?
? The bill for lunch is {a} {money}, and a group of {b} friends divides it into equal parts. On top of {her}
  part {name} gives {c} {money} to the cook. How many {money} does {name} spend?
s = a / b: Each friend pays {eq} {money}.
t = s + c: With the tip {name} pays {eq} {money}.

# cheaper_shop: item=OFFICE money=MONEY a=20-99 b=2-9 c=2-15
? In one shop a set of {b} {item} costs {a} {money}. In the shop across the street a single {one_item} costs
  {c} {money} less than it does in the set. How many {money} does a single one cost there?
s = a / b: In the set one {one_item} costs {eq} {money}.
t = s - c: So in the other shop it costs {eq} {money}.

# sold_and_split: item=CARD money=MONEY a=3-40 b=2-9 c=2-9
? {name} [sells|has sold] {a} {item} from {her} collection for {b} {money} each. {She} gives all the money
  to {c} children in {her} family, the same amount to each. How many {money} does each child receive?
? At a flea market {name} gets {b} {money} for every one of {her} {a} {item}. At home {she} divides the
  money evenly among {c} small children. How many {money} are there for one child?
s = a * b: The sale brings {eq} {money}.
t = s / c: Each child gets {eq} {money}.

# gift_card: money=MONEY item=CLOTHES a=50-99 b=5-50 c=5-40 d=6-36
? {name} has a gift card worth {a} {money} that is valid for {d} months. {She} spends {b} {money} of it on
  {item} and {c} {money} on a map. How many {money} are left on the card?
? A gift card of {name} can be used for {d} months and holds {a} {money}. First {she} pays {b} {money} for
  {item}, then {c} {money} for a map. How many {money} does the card still hold?
s = a - b: After the {item} there are {eq} {money} on the card.
t = s - c: That leaves {eq} {money}.

# hotel_nights: money=MONEY a=2-9 b=2-9 c=3-60 d=2-60
? A family takes {a} rooms in a hotel that is {d} kilometers from the sea and stays for {b} nights. Every
  room costs {c} {money} per night, with breakfast. How many {money} does the family pay [for the whole
  stay|in the end]?
s = a * b: This makes {eq} nights to pay.
t = s * c: The whole stay costs {eq} {money}.

# order_with_coupon: item=GOODS money=MONEY a=20-90 b=3-30 c=4-40
? {name} orders {item} for {a} {money} on the web. The delivery costs another {b} {money}, but a coupon
  takes {c} {money} off. How many {money} does {name} pay for the order?
? Some {item} cost {a} {money}, and {b} {money} must be added for the delivery. {name} has a coupon that
  lowers the total by {c} {money}. How many {money} remain to be paid?
s = a + b: With the delivery it costs {eq} {money}.
t = s - c: After the coupon {name} pays {eq} {money}.

# price_per_box: item=FRUIT box=BOX money=MONEY a=20-99 b=2-9 c=2-9
? A trader asks {a} {money} for {b} {box} of {item}. {name} needs only {c} {box} for {her} cafe and pays the
  same price per {one_box}. How many {money} does {name} pay?
? For {b} {box} of {item} {other} paid {a} {money} at the market. {name} goes there later and buys {c} {box}
  at that price. How many {money} does {name} spend?
s = a / b: One {one_box} costs {eq} {money}.
t = s * c: So {name} pays {eq} {money}.

# delivery_fee: item=GOODS money=MONEY a=20-90 b=3-40 c=2-9 d=4-60
? The price of one {one_item} is {a} {money}, but {name} gets it for {b} {money} less because {she} buys {c}
  of them. The delivery by truck costs {d} {money}. How many {money} does {name} pay in all?
s = a - b: One {one_item} costs {eq} {money}.
t = s * c: All of them cost {eq} {money}.
u = t + d: With the delivery {name} pays {eq} {money}.

# stall_profit: item=BAKED other_item=FRUIT money=MONEY a=4-9 b=8-50 c=2-9 d=3-30
? {name} sells {a} trays of {item} for {b} {money} per tray. To make them, {she} had to buy {c} bags of
  {other_item} for {d} {money} per bag. How many {money} does {name} gain?
? To bake {item}, {name} buys {other_item}: {c} bags at {d} {money} a bag. Later {she} sells {a} trays of
  the {item} at {b} {money} a tray. How many {money} more does {she} earn than {she} spent?
s = c * d: {name} spends {eq} {money}.
t = a * b: {name} earns {eq} {money}.
u = t - s: So {name} gains {eq} {money}.

# meal_change: drink=DRINK money=MONEY a=3-15 b=2-9 c=2-6 d=60-99
? At a kiosk a sandwich costs {a} {money}, and one {one_drink} of lemonade costs {b} {money}. {name} buys
  both for each of {c} children and pays with {d} {money}. How many {money} does {she} get back?
s = a + b: The food for one child costs {eq} {money}.
t = s * c: For all the children that is {eq} {money}.
u = d - t: So {name} gets back {eq} {money}.

# rent_and_food: money=MONEY a=20-90 b=2-9 c=10-90 d=10-80
? {name} earns {a} {money} a day and works for {b} days. {She} pays {c} {money} for {her} room and {d}
  {money} for food. How many {money} does {she} have left?
? In {b} days of work {name} earns {a} {money} per day. Of this money {c} {money} go to the landlord and {d}
  {money} are spent on food. How many {money} remain?
s = a * b: {name} earns {eq} {money}.
t = s - c: After the rent {eq} {money} are left.
u = t - d: After the food {eq} {money} are left.

# bulk_rebate: item=OFFICE money=MONEY a=24-99 b=3-9 c=2-10 d=3-40
? A pack of {b} {item} costs {a} {money}. For a large order the shop takes {c} {money} off the price of each
  {one_item}, so the school orders {d}. How many {money} does the school pay?
s = a / b: One {one_item} costs {eq} {money}.
t = s - c: With the large order it costs {eq} {money}.
u = t * d: In all the school pays {eq} {money}.

# two_sellers: item=VEGETABLE box=BOX a=20-90 b=20-90 c=3-9 d=2-8 d<c
? Two sellers put their {item} together: one has {a} {item}, the other has {b}. They fill {c} {box} with the
  same number in each and sell {d} of the {box}. How many {item} do they sell?
? One seller brings {a} {item} and another seller brings {b}. All of them go into {c} {box} in equal parts.
  By noon {d} {box} are sold. How many {item} are sold by then?
s = a + b: Together they have {eq} {item}.
t = s / c: Each {one_box} holds {eq} {item}.
u = t * d: So they sell {eq} {item}.

# shop_window: item=CLOTHES a=3-9 b=4-30 c=5-60 d=2-9
? A shop gets {a} deliveries of {b} {item} each and still has {c} {item} in the back room. {name} hangs them
  all on {d} racks so that every rack looks the same. How many {item} hang on one rack?
s = a * b: The deliveries bring {eq} {item}.
t = s + c: With the back room there are {eq} {item}.
u = t / d: One rack holds {eq} {item}.

# refund_split: money=MONEY a=40-99 b=5-50 c=2-9 d=3-50
? A tour costs {a} {money}, of which {b} {money} are paid by the school. The rest is split equally among {c}
  students. {name} is one of them and buys a map for {d} {money} as well. How many {money} does {name}
  spend?
? The school pays {b} of the {a} {money} that a tour costs, and {c} students pay equal parts of the rest.
  {name}, one of these students, also spends {d} {money} on a map. How many {money} does {she} spend
  altogether?
s = a - b: The students pay {eq} {money}.
t = s / c: Each student pays {eq} {money}.
u = t + d: With the map {name} spends {eq} {money}.

# two_wallets: money=MONEY item=TOY a=20-90 b=2-9 c=3-80 d=5-60
? {name} has {a} {money}. {Her} aunt has {b} times as many {money} and pays {c} {money} for a ticket and {d}
  {money} for some {item}. How many {money} does the aunt have then?
s = a * b: The aunt has {eq} {money} at first.
t = s - c: After the ticket there are {eq} {money}.
u = t - d: Then {eq} {money} are left.

# store_day: item=GOODS other_item=CLOTHES money=MONEY a=3-9 b=8-40 c=3-9 d=8-40 e=10-90
? In one day a store sells {a} {item} for {b} {money} each and {c} {other_item} for {d} {money} each. One
  customer comes back and gets {e} {money} returned. How many {money} does the store keep?
? A customer returns something and gets back {e} {money}. On the same day the store sells {a} {item} at {b}
  {money} and {c} {other_item} at {d} {money} apiece. How many {money} does the store have from this day?
s = a * b: The {item} bring {eq} {money}.
t = c * d: The {other_item} bring {eq} {money}.
u = s + t: In all the store takes {eq} {money}.
v = u - e: That leaves {eq} {money}.

# lemonade_stand: money=MONEY a=4-30 b=4-30 c=2-9 d=5-60 e=2-9
? {name} and {other} sell lemonade for {c} {money} a cup. {name} sells {a} cups, and {other} sells {b} cups.
  They pay back {d} {money} for the sugar and share the rest in {e} equal parts. How many {money} are in one
  part?
s = a + b: Together they sell {eq} cups.
t = s * c: The cups bring {eq} {money}.
u = t - d: Without the cost of the sugar there are {eq} {money}.
v = u / e: Each part is {eq} {money}.

# spice_jars: money=MONEY a=24-99 b=3-9 c=2-9 d=4-60 e=3-50
? {b} jars of spice cost {a} {money}. {name} buys {c} such jars, a pan for {d} {money}, and gets {e} {money}
  off as a good customer. How many {money} does {name} pay?
? A cook pays {a} {money} for {b} jars of spice. {name} takes {c} of the same jars and a pan for {d}
  {money}, and the seller lowers the total by {e} {money}. How many {money} does {name} pay?
s = a / b: One jar costs {eq} {money}.
t = s * c: The jars of {name} cost {eq} {money}.
u = t + d: With the pan it is {eq} {money}.
v = u - e: So {name} pays {eq} {money}.

# ring_shop: money=MONEY day=DAY a=4-9 b=10-60 c=10-90 d=2-9 e=3-40
? On {one_day} a jeweler sells {a} rings for {b} {money} each and pays {c} {money} for silver. The rest is
  put into {d} envelopes in equal amounts. Then {e} {money} are added to one envelope for the cleaner. How
  many {money} does it hold?
s = a * b: The rings bring {eq} {money}.
t = s - c: After the silver {eq} {money} are left.
u = t / d: Each envelope gets {eq} {money}.
v = u + e: The envelope for the cleaner has {eq} {money}.

# used_books: item=READING money=MONEY a=30-99 b=4-50 c=2-9 d=2-30 e=2-9
? {name} has {a} {item} and keeps {b} of them. The others fill {c} tables at a sale, equally many on each.
  On one table {she} adds {d} more, and all on this table are sold for {e} {money} each. How many {money}
  come from this table?
s = a - b: {name} wants to sell {eq} {item}.
t = s / c: Each table gets {eq} {item}.
u = t + d: On the one table there are {eq} {item}.
v = u * e: This table brings {eq} {money}.

# tool_rental: money=MONEY a=4-9 b=10-60 c=2-9 d=3-30 e=2-9
? A rental shop takes {b} {money} a day for a digger, and a builder keeps it for {a} days. Then the shop
  needs {c} hours to repair the digger, at {d} {money} an hour. The {e} owners of the shop share the gain
  equally. How many {money} does each owner get?
s = a * b: The digger brings {eq} {money}.
t = c * d: The repairs cost {eq} {money}.
u = s - t: So the gain is {eq} {money}.
v = u / e: Each owner gets {eq} {money}.

# ticket_groups: money=MONEY a=24-99 b=3-9 c=2-20 d=2-9 e=5-80
? A day pass for a group of {b} costs {a} {money}. People who come alone pay {c} {money} more than each
  member of a group. {name} buys {d} passes for people who come alone and has a coupon of {e} {money}. How
  many {money} does {she} pay?
s = a / b: In a group each pass costs {eq} {money}.
t = s + c: A single pass costs {eq} {money}.
u = t * d: The passes cost {eq} {money}.
v = u - e: After the coupon {name} pays {eq} {money}.

# toy_maker: item=TOY money=MONEY a=10-60 b=3-30 c=2-9 d=20-99 e=10-99
? The wood for one {one_item} costs {b} {money}, and a toy maker sells it for {a} {money}. {She} sells {c}
  of the {item}, had {d} {money} before, and buys a new saw for {e} {money}. How many {money} does {she}
  have in the end?
s = a - b: Each {one_item} earns {eq} {money}.
t = s * c: The {item} earn {eq} {money}.
u = t + d: With the money from before there are {eq} {money}.
v = u - e: After the saw {eq} {money} are left.

# bank_account: money=MONEY a=20-99 b=20-99 c=5-60 d=5-60 e=2-9 f=3-60
? {name} is {f} years old and has {a} {money} at one bank and {b} {money} at another. {She} pays bills of
  {c} {money} and {d} {money} and splits all that is left equally among {e} piggy banks. How many {money} go
  into one piggy bank?
s = a + b: In all {name} has {eq} {money}.
t = s - c: After the first bill {eq} {money} are left.
u = t - d: After the second bill {eq} {money} are left.
v = u / e: One piggy bank gets {eq} {money}.
"""

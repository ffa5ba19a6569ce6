"""`upgrade-tools serve`: committed state over HTTP, and a page that shows it. Only GET; nothing is changed.

following    the state at its newest batch: one thread owns it, and all that reads open shards runs there
asking       the parameters of a request, checked
content      bytes as they stand in answers
entries      entries in pages, and as they are streamed
sampling     figures of a store, from a sample that is read in bounded time
history      what deltas hold: of one key, and of one version
answers      the other answers: overview, stores, files, batches
report       the overview as one file
openapi      the description of all paths
guard        who may ask, and the headers of each answer
app, running paths and their answers, and the server
static       the page: modules as browsers read them, without a build

Imports `location`, `rows` and `states`; `cli` imports it. Start at `app`, or at `static/app.js`.
"""

// Package collector drives agents over tasks: it claims samples, runs attempts
// on a bounded worker pool, classifies and retries what fails, and hands finished
// samples to a sink. It knows no wire format and no file format.
//
// # Words
//
// One word per concept, here and everywhere:
//
//   - task: what to do, one or more user messages with an id
//   - sample: one repetition of a task, with an index from 0
//   - group: the samples of one task
//   - attempt: one try at a sample, numbered from 1
//   - run: this invocation with its folder; the server's own run is a server run
//   - call: one generation of the model; one step of the server is one call
//   - turn: one element of turns as the server sends it
//   - span: a stretch of a row with one role
//   - row: one training sequence; a sample gives one or several
//   - segment: a row's place among the rows of its sample
//   - shard: one data file; commit: the log entry that makes a shard exist
//
// # From a task to a row
//
//	tasks ─► claim ─► attempt ─► Agent.Run ─► Reply ─► Prompts ──► calls ─► Aligner ─► rows ─► Scorer ─► Sink
//	                     │                                                                        ▲
//	                     └── failure ── Classify ── retry on a new agent, or a failure row ───────┘
//
// # Guarantees
//
// A failed attempt is data, never a crash: it becomes a failure row and counts
// towards the accounting identity
//
//	planned = committed + failed + skipped + remaining
//
// which holds at every moment. Only the sink, authentication, a server or model
// that cannot be used, and servers that do not answer any more end a run, besides
// the tolerance for failures. A server that is down, or busy, for a while costs no
// samples, and a sample that fails on every try is not taken for a server that is
// down. Where there are several servers, the samples of one that is down go on at the
// others within seconds.
// Everything that Run started has returned when Run returns, and every agent that
// it opened was closed.
//
// Where a prompt is not what came before it, the row that it began or was repaired in
// keeps the place and both sides (tokenize.Row's Divergence and Realigned). Where a
// rebuilt prompt disagrees with its count, the failure's error has both counts. What
// Align.MaxRowTokens cut off is only counted, in Stats.
//
// A sample is given to the sink before its agent is removed from the server. What
// a stop cuts off remains to be done: it is no failure.
//
// # Over the life of a process
//
// A run goes on in the next process where one was killed, by what two files know: the
// dataset has the samples, and the journal what the servers may still be doing.
//
//	attempt          journal                  dataset      killed here, the next process
//	                                                       makes it
//	  │              Begin  key/1 at a                     finds no agent: key/2
//	  ├─ Open        Agent  key/1 agent                    looks for the agent, by tags
//	  ├─ Run         Run    key/1 server run               waits for it and takes its tokens
//	  ├─ prompts, rows, reward                             the same, from what the server keeps
//	  ├─ Append                               durable      has it: nothing is left to do
//	  │              End    key/1 none                     "
//	  └─ Close                                             ", and clean removes the agent
//
// Config.Left tells both. Where they disagree the dataset is right. Its done and failed
// samples are counted and not taken up, open attempts go first, and to the endpoint
// where they were made, then the groups that were begun, then the rest. A Reattacher
// takes an open attempt over under its own number; where nothing can be taken over, or
// it cannot be looked for, or its endpoint is not there any more, another attempt is made
// and none of the retries charged. No number is given twice, so of two attempts at a
// sample it is always plain which is the later.
//
// What is taken over is never worth less than a new attempt: the end of a process costs
// no sample. A server may bring the prompts of its calls along with an answer and keep
// them nowhere; what is taken from its memory then has none, or only rebuilt ones. Where
// that leaves out a call, or is proven less well than Config.Require asks for, and an
// answer might do better, the rollout counts as gone and is rolled again. What an answer
// would lack as well (a call after a compaction whose prompts are rebuilt, tokens that
// contradict each other) is judged as that of an answer. Whether answers bring prompts
// along is seen from those that were received, in this process or, by
// Config.TurnsHavePrompts, in an earlier one; until that is known a new attempt finds out.
//
// A stop closes what it can, and notes those attempts as cancelled. What it cannot
// close stays open in the journal, as after a kill.
//
// # Two budgets
//
// Config.Retries is for what the infrastructure did, Config.DataRetries for what the
// policy did: Class says which is which. The second picks: of a task on which the policy
// fails half the time, rolling again keeps the half that went well, and the dataset shows
// a policy that is better than it is. It is 0 unless asked for, and the attempt column
// shows where it was used.
//
//	what was lost                               rolled again, at the cost of
//	a process, whatever it had in flight        nothing
//	an answer, of which the server's memory     one of Retries, as any lost connection;
//	gives less than the answer had              where none is left and other calls of the
//	                                            sample make rows, those are kept
//	a call that an answer would lack too        as Class says of its reason
//
// The first costs time, and is not free of bias either: a rollout that takes long is in
// flight for long and is lost more often, so what is rolled again for the network's sake
// leaves the dataset short of long rollouts. Where answers can be taken from the server's
// memory in full that does not happen. Stats.Rerolls counts what was rolled again by
// reason with how long it had taken, and Stats.Kept those that became data: where the
// former took longer on the mean, that much is missing. Rows that were kept although
// their answer would have been proven better are in Stats.Downgraded.
//
// # Admission
//
// A sample is worked on when its endpoint has room for it. How much room there is, is
// MaxInFlight, or what package limit finds out up to it. What was begun goes before
// what was not, a sample that waits for its retry makes room for another, and while a
// server is down one sample every few seconds sees whether it is back. Where another
// server is up the samples do not wait for that: what waits for its retry, what has no
// agent yet and what lost its connection moves there, and the server is asked without a
// sample, by a ping and a check (Pinger, Checker), every five seconds. Only open
// attempts wait for their own server, for Config.Outage.
//
// # Memory
//
// Workers are made as samples need them, so that what a run holds follows what is in
// flight, and not MaxInFlight: a limit of ten million is no reason for memory.
//
// A worker holds the replies of one attempt and the rows made of them, from the end of
// their reading until the sink has the rows. How many bytes of replies are held at once,
// also where the sink is slow, is the backend's to bound, and how many bytes of accepted
// samples wait for their shard is the sink's.
//
// # Reading order
//
// backend.go says what the collector needs from outside, and reply.go what an agent
// answers; task.go what comes in and how it is named; collector.go is the run, feed.go the
// order in which samples are taken up; worker.go the way of one sample through its
// attempts, gate.go how it gets its turn, relay.go how it gets to another endpoint;
// attempt.go is one attempt from start to end, outcome.go and score.go what becomes of it,
// takeover.go the attempt of an earlier process, lostanswer.go an answer that was lost,
// removal.go the end of an agent; errors.go and classify.go say what a failure is;
// health.go and endpoint.go follow whether servers live; tail.go ends what takes longest,
// barren.go a run that gives nothing; events.go and stats.go are what can be seen.
package collector

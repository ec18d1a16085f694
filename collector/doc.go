// Package collector drives agents over tasks. It claims samples, runs attempts on workers,
// classifies and retries what fails, and gives finished samples to a sink. It knows no wire
// format and no file format.
//
// # Words
//
// One word for each concept, here and everywhere:
//
//   - task: what to do, one or more user messages with an id
//   - sample: one repetition of a task, with an index from 0
//   - group: the samples of one task
//   - attempt: one try at a sample, numbered from 1
//   - rollout: what one attempt makes the policy do, from the first message to the last
//     answer; it becomes the rows of its sample
//   - run: one collection with its folder, over all the processes that continue it; the
//     server's own run is a server run
//   - send: one request with messages to an agent, and its answer
//   - reply: the sends of one rollout, as package collector gets them
//   - call: one generation of the model; one step of the server is one call
//   - turn: one element of turns as the server sends it
//   - span: a stretch of a row with one role
//   - row: one training sequence; a sample gives one or several
//   - segment: the place of a row among the rows of its sample
//   - grade: how well the prompts of a row are proven
//   - quarantine: a call whose prompt is not known makes no row; its tokens are kept as a
//     failure, with a reason
//   - record: what a server keeps of a server run: run, steps, messages, traces
//   - take over (the name in code is reattach): to go on with the open attempt of a process
//     that died
//   - endpoint: one server of a run
//   - claim: a sample in the hands of a worker; claiming takes one
//   - permit: leave to work on a sample at an endpoint, which the gate gives
//   - censored: cut off by the tail policy, or at the deadline of its task
//   - filtered: in the data with keep=false
//   - whole: all samples of a group are with the sink
//   - ahead: of groups, begun and not yet acknowledged by the trainer, filtered or failed
//   - shard: one data file; commit: the log entry that makes a shard exist
//
// # Where to find it
//
//	who takes a sample, and in which order            feed.go (order), send.go, worker.go (claim)
//	tasks that come while a run goes on               more.go; their owner ends the source when
//	                                                  the context of Config.More ends
//	when the next group may begin                     package pace; send.go asks it
//	the life of a sample: room, attempt, decide, act  sample.go (worker.sample)
//	one attempt from start to end                     attempt.go
//	where a send is made                              collector/agent: agent.go (send), which
//	                                                  watches it in watch.go (sendWatched)
//	who deletes an agent                              see "Who deletes an agent" below
//	what a failure is                                 classify.go; the words for it are in errors.go;
//	                                                  error, class and kind: the table of Class.
//	                                                  What HTTP says is read in collector/letta
//	                                                  (classify.go), what the server run says of a
//	                                                  400 or 500 in collector/agent (explain.go)
//	what happens after a failure                      package breaker decides, sample.go (act) does it
//	what happens on 429                               package breaker (Busy): the sample waits and pays
//	                                                  nothing up to Config.BusyMax; package limit cuts
//	                                                  how many samples are worked on
//	what happens on 500, 503, refused, reset          package breaker (Fault): the sample pays while the
//	                                                  server is up and nothing while it is down; package
//	                                                  limit cuts on 502, 503 and refused, and on several
//	                                                  of the others
//	how a reply becomes rows                          outcome.go (attempt.sample)
//	where the grade of a row is decided               per call: tokenize (CallsFromTurns, in
//	                                                  turn_check.go) and collector/prompt (grade.go); a
//	                                                  row has the worst grade of its calls;
//	                                                  Config.Require refuses it in outcome.go
//	where the policy version of a call comes from     package policy, and versions.go of
//	                                                  collector/agent
//	what happens when an answer is lost               lostanswer.go
//	how a server run of another program is read       collector/agent: reader.go; Task.Recorded
//	what the next process does with this one's work   takeover.go, package journal
//	what is synced (fsync) when                       samples: package sink; attempts: package journal;
//	                                                  which of them first: "Over the life of a process".
//	                                                  run.json, tasks.jsonl and the folder itself,
//	                                                  before both, and report.json and report.html
//	                                                  at the end: cmd/rollout/internal/runfolder
//	whether a server is up, and who moves             endpoint.go, relay.go
//	which endpoint gets the next sample               share.go, by weight among those with room
//	how many samples are worked on at a time          gate.go, package limit
//	what cuts a group at its deadline                 deadline.go; send.go and more.go where it
//	                                                  waits, worker.go (room) and relay.go where a
//	                                                  worker had it, attempt.go in a rollout
//	what ends a run early                             tail.go, barren.go, score.go, Config.MaxFailures
//	what can be seen of a run                         stats.go, counters.go, events.go
//	what the outside must bring                       backend.go, reply.go; task.go is the input
//	where to begin as a library                       the Example of collector/agent; see "As a library"
//
// # Who deletes an agent
//
//	after each attempt                          removal.go (close), which calls Agent.Close
//	one that cannot be used, as soon as that    collector/agent: abandon, in create.go
//	is known
//	older ones of a sample that is taken over   collector/agent: findAgent, in reattach.go
//	those of a preflight, a try or a check      collector/agent: preflight.go, check.go
//	what a killed or a stopped process left     agent.Clean. Package collector does not call it. The
//	                                            command does at a resume and at the end of a run
//	                                            (cmd/rollout/internal/leftovers), and the next
//	                                            preflight for those of preflights
//	all of a run, when a person says so         the verb clean: cmd_clean.go
//
// # To add something
//
// An aggregate of the summary. What a sample in the sink shows is one of the sums of
// cmd/rollout/internal/show (tally.go). What only the reply or the aligner knows is a field
// of Yield, set in outcome.go (a.cut), with its line in Yield.add. What happens is a field of
// Stats, counted where it happens, with c.counters.update(func(s *Stats) { s.Field++ }). Yield
// and Stats are shown in summary.go there.
//
// A metric, in cmd/rollout/internal/show. One that counts events: a field of Metrics, its line
// in NewMetrics, a method that counts, and the call in observer.go. One that is read when
// metrics are scraped: its desc and its lines in Describe and Collect, in metrics_stats.go.
// Then its panel in configs/grafana-dashboard.json, or an alert on it in configs/alerts.yml; a
// test fails if it is in neither.
//
// A setting of the command: see the package comment of cmd/rollout/internal/config.
//
// A source of prompts:
//
//  1. Package tokenize: a PromptSource (call.go), its word (words.go), what it proves
//     (PromptSource.proves in row_check.go), and a line in the package comment.
//  2. Package prompt: Config.Force (New), the step that makes the prompts (rebuild, with a
//     file from_X.go), and grade.go if a proof of it can have a gap: withdraw knows only
//     SourceStored. The tables of the package comment.
//  3. If it comes with an answer: answerPrompts.note here (lostanswer.go), and TurnsHavePrompts
//     of cmd/rollout/internal/runfolder (resume.go), which says the same from earlier rows.
//  4. cmd/rollout: the setting (internal/config: words.go with Prompts.best, settings.go; the
//     comment on tokens.prompts in configs/collect.yaml) and the report
//     (internal/report/samples.go). The table of the README. Samples for the tests of formats
//     (sink/sinktest/samples.go).
//
// A class of failure: Class and classes (classify.go); a sentinel in errors.go if somebody
// else says it; its line in the comment of Class. The linter names every
// switch without a default that lacks it.
//
// # From a task to a row
//
//	tasks ─► claim ─► attempt ─► Agent.Run ─► Reply ─► Prompts ──► calls ─► Aligner ─► rows ─► Scorer ─► Sink
//	                     │                                                                        ▲
//	                     └── failure ── Classify ── breaker ── retry on a new agent, or a failure row
//
// The way of one sample in worker.sample:
//
//	room     waits until the sample may be worked on here
//	attempt  makes one attempt
//	decide   asks the breaker what follows: retry charged, retry free, fail, pass on, stop
//	act      does it: waits for the retry, or gives the failure to the sink
//
// # Guarantees
//
// A failed attempt is data and never a crash. If its sample fails for good, the last attempt
// becomes a failure row; of the attempts before it, Stats and the journal keep that they were.
// At every moment
//
//	planned = committed + filtered + failed + skipped + remaining
//
// At the deadline of its task a group is whole: what has no reply is cut, wherever it is. What
// is in the way of that is bounded: the removal of an agent (Config.CloseTimeout), a check of
// the server in progress (a minute), and the sink.
//
// Whoever waits for the next task or for the pacer stops waiting at a drain and at a stop. The
// pacer discards nothing: it lets groups begin in their order, later.
//
// Few things end a run besides the tolerance for failures: the sink, authentication, a server
// or model that cannot be used, and servers that do not answer any longer. A server that is
// down or busy for a while costs no samples. A sample that fails on every try does not make a
// server count as down. If there are several servers, the samples of one that is down go on at
// the others within seconds.
//
// Everything that Run started has returned when Run returns, and every agent that it opened
// was closed. The sink has a finished sample before its agent is removed from the server. The
// agent of a failed attempt is removed first, after what is left of its tokens was copied. What
// a stop cuts off remains to be done; it is not a failure.
//
// If a prompt does not continue what came before it, a row begins or is repaired there. That
// row records where the two differ, and the first ids of each (Divergence and Realigned of
// tokenize.Row). If a rebuilt prompt disagrees with its count, the error of the failure has
// both counts. What Align.MaxRowTokens cuts off is only counted, in Stats.
//
// # Over the life of a process
//
// A run goes on in the next process after a kill. Two files know how: the dataset has the
// samples, and the journal has what the servers may still be doing.
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │              Begin  key/1 at a                     finds no agent and makes key/2
//	  ├─ Open        Agent  key/1 agent                    looks for the agent, by tags
//	  ├─ Run         Run    key/1 server run               waits for it and takes its tokens
//	  ├─ prompts, rows, reward                             does the same, from the record
//	  ├─ Append                               synced       has nothing left to do
//	  │              End    key/1 none                     has nothing left to do
//	  └─ Close                                             has nothing left to do; agent.Clean
//	                                                       removes the agent
//
// An attempt that fails ends in another order, whatever step it reached:
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │
//	  ├─ Close                                             finds no agent and makes key/2
//	  ├─ Append, if the sample fails for good  synced      has nothing left to do
//	  │              End    key/1 class                    has nothing left to do, or makes key/2
//
// Each note is in the journal's file before the step below it is made, and is synced some
// milliseconds later, without a wait. Append returns after the sync of the write-ahead log, so
// the sample is synced before End is noted. A power cut may therefore take notes whose steps
// were made, and never a sample whose End is there.
//
// Config.Left tells both. If they disagree the dataset is right. Its done and failed samples
// are counted and not taken up. Open attempts come first, at the endpoint where they were made,
// then the groups that were begun, then the rest. A Reattacher takes an open attempt over under
// its own number. If nothing can be taken over, or the attempt cannot be looked for, or its
// endpoint is gone, another attempt is made at no cost. No number is given twice, so it is
// always plain which of two attempts is the later one.
//
// The end of a process costs no sample, and what is taken over is never worth less than a new
// attempt. An answer may carry prompts that the server does not store. If the answer is lost,
// the record may therefore prove less. Where it proves less than Config.Require, or leaves a
// call out, and a new attempt could prove more, the rollout counts as gone and the sample is
// attempted again. What a new attempt would lack too (a call after a compaction whose prompts
// are rebuilt, tokens that contradict each other) is treated as in any answer. Received answers
// show whether they carry prompts, in this process or, by Config.TurnsHavePrompts, in an
// earlier one. Until one answer was received, answers are assumed to carry them.
//
// A stop closes what it can, and notes those attempts as cancelled. What it cannot close stays
// open in the journal, as after a kill.
//
// # Two budgets
//
// Config.Retries is for what the infrastructure did, and Config.DataRetries for what the policy
// did. Class tells which is which. The second one selects: of a task on which the policy fails
// half the time, it keeps the half that went well, and the dataset shows a better policy than
// there is. So it is 0 by default, and the attempt column shows where it was used.
//
//	what was lost                               what another attempt costs
//	a process, with all that it had in flight   nothing
//	an answer, and the record gives less        one of Retries, as after any lost connection; if
//	                                            none is left and other calls of the sample make
//	                                            rows, those are kept
//	a call that an answer would lack too        what Class says of its reason
//
// Retries are not free of bias either. A rollout that takes long is in flight for long and is
// lost more often, so the dataset is short of long rollouts if the network loses many. It is
// not if answers can be taken from the record in full. Stats.Remade counts what was made
// again, by reason, with the time that it had taken, and Stats.Kept what became data: if the
// mean of the first is higher, that much is missing. Stats.Downgraded counts rows that were
// kept although their answer would have been proven better.
//
// # Memory
//
// Workers are made as samples need them. So the memory of a run follows what is in flight and
// not MaxInFlight, which may be ten million.
//
// A worker holds the replies of one attempt and the rows made of them, from the end of reading
// until the sink has the rows. The backend bounds how many bytes of replies are held at once,
// also when the sink is slow. The sink bounds how many bytes of accepted samples wait for their
// shard.
//
// # As a library
//
// The Example of collector/agent (example_test.go) is a whole collection in some forty lines:
// client, prompter, backend, dataset, journal and collector, with a stop and a resume. The
// Example of this package is the smallest: a backend and a sink of one's own, and no resume.
// The command brings what these lack:
//
//   - a lock on the folder: two processes on one folder damage it (cmd/rollout/internal/runfolder)
//   - the identity of a run: that a resume goes on with the same tasks, model and settings
//     (runfolder), without which rows of two settings are mixed
//   - the reading of tasks (cmd/rollout/internal/tasks), with every check of a line
//   - the model's tokenizer and chat template for prompt.Config.Model (bpe.Load and chat.Load;
//     cmd/rollout/internal/model), without which only answers that carry prompts give rows
//   - agents that a killed or stopped process left: agent.Clean (cmd/rollout/internal/leftovers)
//   - what earlier rows say of Config.TurnsHavePrompts (runfolder.TurnsHavePrompts)
//   - retries: Config.Retries is 0 here and 2 there; BusyMax and the time limits are the same
//   - MaxInFlight no higher than open files and memory allow, a preflight, the log, the metrics
//
// The map of the command's own parts is the README.
package collector

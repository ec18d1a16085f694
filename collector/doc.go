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
//   - run: this invocation with its folder; the server's own run is a server run
//   - call: one generation of the model; one step of the server is one call
//   - turn: one element of turns as the server sends it
//   - span: a stretch of a row with one role
//   - row: one training sequence; a sample gives one or several
//   - segment: the place of a row among the rows of its sample
//   - record: what a server keeps of a server run: run, steps, messages, traces
//   - shard: one data file; commit: the log entry that makes a shard exist
//
// # Where to find it
//
//	who takes a sample, and in which order            feed.go, worker.go (claim)
//	the life of a sample: room, attempt, decide, act  sample.go
//	one attempt from start to end                     attempt.go
//	where a send is made                              collector/agent: agent.go (send)
//	who deletes an agent                              removal.go (close), which calls Agent.Close;
//	                                                  what a killed run left: the verb clean
//	what a failure is                                 classify.go; the words for it are in errors.go
//	what happens after a failure                      package breaker decides, sample.go (act) does it
//	what happens on 429                               package breaker (Busy): the sample waits and pays
//	                                                  nothing up to Config.BusyMax; package limit cuts
//	                                                  how many samples are worked on
//	how a reply becomes rows                          outcome.go
//	where the grade of a row is decided               per call: tokenize (CallsFromTurns) and
//	                                                  collector/prompt (grade.go); a row has the worst
//	                                                  grade of its calls; Config.Require refuses it in
//	                                                  outcome.go
//	what happens when an answer is lost               lostanswer.go
//	what the next process does with this one's work   takeover.go, package journal
//	what is fsynced when                              samples: package sink; attempts: package journal
//	whether a server is up, and who moves             endpoint.go, relay.go
//	how many samples are worked on at a time          gate.go, package limit
//	what ends a run early                             tail.go, barren.go, score.go, Config.MaxFailures
//	what can be seen of a run                         stats.go, counters.go, events.go
//	what the outside must bring                       backend.go, reply.go; task.go is the input
//
// To add an aggregate to the summary:
//
//  1. Add a field to Yield if it counts what samples hold, else to Stats (stats.go).
//  2. Count it: in yieldOf and Yield.add, or where it happens, with
//     c.counters.update(func(s *Stats) { s.Field++ }).
//  3. Show it in cmd/rollout/internal/show: summary.go, and metrics_stats.go for a metric.
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
// A failed attempt is data and never a crash: it becomes a failure row. At every moment
//
//	planned = committed + failed + skipped + remaining
//
// Few things end a run besides the tolerance for failures: the sink, authentication, a server
// or model that cannot be used, and servers that do not answer any longer. A server that is
// down or busy for a while costs no samples. A sample that fails on every try does not make a
// server count as down. If there are several servers, the samples of one that is down go on at
// the others within seconds.
//
// Everything that Run started has returned when Run returns, and every agent that it opened
// was closed. The sink has a sample before its agent is removed from the server. What a stop
// cuts off remains to be done; it is not a failure.
//
// If a prompt does not continue what came before it, the row that begins or is repaired there
// keeps the place and both sides (Divergence and Realigned of tokenize.Row). If a rebuilt
// prompt disagrees with its count, the error of the failure has both counts. What
// Align.MaxRowTokens cuts off is only counted, in Stats.
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
//	  ├─ Append                               durable      has nothing left to do
//	  │              End    key/1 none                     has nothing left to do
//	  └─ Close                                             has nothing left to do; clean removes
//	                                                       the agent
//
// Config.Left tells both. If they disagree the dataset is right. Its done and failed samples
// are counted and not taken up. Open attempts come first, at the endpoint where they were made,
// then the groups that were begun, then the rest. A Reattacher takes an open attempt over under
// its own number. If nothing can be taken over, or the attempt cannot be looked for, or its
// endpoint is gone, another attempt is made at no cost. No number is given twice, so it is
// always plain which of two attempts is the later one.
//
// The end of a process costs no sample, and what is taken over is never worth less than a new
// attempt. A server may bring prompts along with an answer and keep them nowhere; its record
// then has no prompts, or only rebuilt ones. If that leaves out a call, or proves it less well
// than Config.Require asks for, and an answer might do better, then the rollout counts as gone
// and is rolled again. What an answer would lack too (a call after a compaction whose prompts
// are rebuilt, tokens that contradict each other) is judged like an answer. Received answers
// show whether they bring prompts along, in this process or, by Config.TurnsHavePrompts, in an
// earlier one. Until that is known a new attempt finds out.
//
// A stop closes what it can, and notes those attempts as cancelled. What it cannot close stays
// open in the journal, as after a kill.
//
// # Two budgets
//
// Config.Retries is for what the infrastructure did, and Config.DataRetries for what the policy
// did. Class tells which is which. The second one selects: of a task on which the policy fails
// half the time, rolling again keeps the half that went well, and the dataset shows a better
// policy than there is. So it is 0 by default, and the attempt column shows where it was used.
//
//	what was lost                               what rolling again costs
//	a process, with all that it had in flight   nothing
//	an answer, and the record gives less        one of Retries, as after any lost connection; if
//	                                            none is left and other calls of the sample make
//	                                            rows, those are kept
//	a call that an answer would lack too        what Class says of its reason
//
// Retries are not free of bias either. A rollout that takes long is in flight for long and is
// lost more often, so the dataset is short of long rollouts if the network loses many. It is
// not if answers can be taken from the record in full. Stats.Remade counts what was rolled
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
package collector

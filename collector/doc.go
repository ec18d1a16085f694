// Package collector runs agents on tasks. It claims samples, runs attempts on workers, classifies
// and retries failures, and appends finished samples to a sink. It knows no wire or file format.
//
// # Words
//
//   - task: one or more user messages with an id
//   - sample: one repetition of a task, with an index from 0
//   - group: the samples of one task
//   - attempt: one try at a sample, numbered from 1
//   - rollout: the conversation of one attempt, from the first message to the last answer; it
//     becomes the rows of its sample
//   - run: one collection with its folder, over all the processes that continue it; Letta's own run
//     is a server run
//   - send: one request with messages to an agent, and its answer
//   - reply: the sends of one rollout, as a Backend returns them
//   - call: one generation of the model; one step of the server is one call
//   - turn: one element of turns as the server sends it
//   - span: a stretch of a row with one role
//   - row: one training sequence; a sample has one or several
//   - segment: the place of a row among the rows of its sample
//   - grade: how well the prompts of a row are proven
//   - quarantine: a call with an unknown prompt makes no row; its tokens are stored as a failure,
//     with a reason
//   - record: the data that a server stores about a server run: run, steps, messages, traces
//   - take over (reattach in code): continue the open attempt of a process that died
//   - endpoint: one server of a run
//   - claim: a sample that a worker has taken; to claim is to take a sample
//   - permit: the gate's permission to work on a sample at an endpoint
//   - censored: cut off by the tail policy, or at the deadline of its task
//   - filtered: in the data with keep=false
//   - whole: a group is whole when the sink has all its samples
//   - ahead: a group that has begun and is not yet acknowledged by the trainer, filtered or failed
//   - shard: one data file; commit: the log entry that makes a shard exist
//
// # Where to find it
//
//	order of claims                                   feed.go (order), send.go, worker.go (claim)
//	tasks that arrive during a run                    backlog.go
//	when the next group can begin                     package pace; send.go asks it
//	the life of a sample                              sample.go (worker.collect); its permit and its
//	                                                  waits: placement.go; what it keeps between
//	                                                  attempts: retry.go; its end: finish.go
//	one attempt from start to end                     attempt.go
//	where a send is made                              collector/agent: agent.go (send), watch.go
//	                                                  (sendWatched)
//	classes of failures                               classify.go; sentinels: errors.go. HTTP errors:
//	                                                  collector/letta (classify.go); the server run of
//	                                                  a 400 or 500: collector/agent (explain.go)
//	what follows a failure                            package breaker decides, retry.go (followUp) acts;
//	                                                  package limit lowers the samples in flight
//	how a reply becomes rows                          outcome.go (attempt.sample)
//	where the grade of a row is decided               per call: tokenize (CallsFromTurns, in
//	                                                  turn_check.go) and collector/prompt (grade.go); a
//	                                                  row has the worst grade of its calls;
//	                                                  outcome.go enforces Config.Require
//	policy version of a call                          package policy; collector/agent: versions.go
//	lost answers                                      lostanswer.go
//	server runs of other programs                     collector/agent: reader.go; Task.Recorded
//	resuming the work of an earlier process           feed.go, retry.go (resumed), package journal
//	when data is synced (fsync)                       samples: package sink; attempts: package journal;
//	                                                  run.json, tasks.jsonl, report.json, report.html:
//	                                                  cmd/rollout/internal/runfolder
//	server health, and moving samples                 endpoint.go, relay.go
//	which endpoint gets the next sample               share.go
//	number of samples in flight                       gate.go, package limit
//	how a deadline cuts a group                       cutoff.go; before a claim: send.go and backlog.go;
//	                                                  after a claim: placement.go and relay.go; during a
//	                                                  rollout: attempt.go
//	reasons to end a run early                        tail.go, earlyfail.go, score.go, Config.MaxFailures
//	statistics and events of a run                    stats.go, counters.go, events.go
//	interfaces that the caller implements             backend.go, reply.go; task.go is the input
//
// # Who deletes an agent
//
//	after each attempt                          removal.go (close), which calls Agent.Close
//	an unusable agent, at once                  collector/agent: deleteUnusable, in create.go
//	older agents of a reattached sample         collector/agent: findAgent, in reattach.go
//	agents of a preflight, a try or a check     collector/agent: preflight.go, check.go
//	agents of a killed or stopped process       agent.Clean. The command calls it on resume and at
//	                                            the end of a run (cmd/rollout/internal/leftovers), the
//	                                            next preflight for agents of preflights
//	all agents of a run, on request             the verb clean: cmd_clean.go
//
// # To add something
//
// A figure of the summary: if a stored sample shows it, add a sum in cmd/rollout/internal/show
// (tally.go). If only the reply or the aligner knows it, add a field of Yield, which outcome.go
// sets (a.alignerYield), and its line in Yield.add. If it is an event, add a field of Stats and
// count it in place. Package show prints Yield and Stats in summary.go.
//
// A metric, in cmd/rollout/internal/show: if it counts events, add a field of Metrics, its line in
// NewMetrics, a method that counts, and a call in observer.go. If it is read on each scrape, add a
// line in metrics_stats.go. Then add a panel in configs/grafana-dashboard.json or an alert in
// configs/alerts.yml: a test fails if both lack it.
//
// A setting of the command: see the package comment of cmd/rollout/internal/config.
//
// A source of prompts:
//
//  1. In package tokenize, add a PromptSource (call.go), its word (words.go), its proof
//     (PromptSource.proves in row_check.go), and a line in the package comment.
//  2. In package prompt, extend Config.Force (New), the function rebuild with a step that makes the
//     prompts (a file from_X.go), and the tables of the package comment. If the proof can have a
//     gap, extend grade.go: withdraw knows only SourceStored.
//  3. If the prompts come with an answer, extend answerPrompts.note (lostanswer.go), and
//     TurnsHavePrompts of cmd/rollout/internal/runfolder (resume.go), which derives the same from
//     earlier rows.
//  4. In cmd/rollout, extend the setting (internal/config: words.go with Prompts.best, settings.go;
//     the comment on tokens.prompts in configs/collect.yaml) and the report
//     (internal/report/samples.go). Extend the table of grades in sink/README.md, and the samples
//     for the tests of formats (sink/sinktest/samples.go).
//
// A class of failure: add it to Class, to the table in the comment of Class, and to classes
// (classify.go). Add a sentinel in errors.go if another package returns it. The linter names every
// switch without a default that lacks the class.
//
// # From a task to a row
//
//	tasks ─► claim ─► attempt ─► Agent.Run ─► Reply ─► Prompts ──► calls ─► Aligner ─► rows ─► Scorer ─► Sink
//	                     │                                                                        ▲
//	                     └── failure ── Classify ── breaker ── retry on a new agent, or a failure row
//
// worker.collect repeats three steps: acquire (wait for a permit), attempt, and followUp (ask the
// breaker what follows, then wait for the retry or append the failure).
//
// Each part of a sample's state has one owner:
//
//	sample      task, key, cutoff: what it is, and when it is cut    the feed makes it, read-only
//	retryState  budget, attempts so far, open attempt to take over   the worker, in retry.go
//	placement   endpoint, permit, waits                              the worker, in placement.go
//
// # Guarantees
//
// A failed attempt is data and never a crash. If its sample fails for good, the last attempt
// becomes a failure row. Stats and the journal count the attempts before it. At every moment
//
//	planned = committed + filtered + failed + skipped + remaining
//
// At the deadline of its task a group becomes whole: samples without a reply are cut, whatever
// their state. Three things can delay this, each for a bounded time: the removal of an agent
// (Config.CloseTimeout), a check of the server in progress (a minute), and the sink.
//
// A drain or a stop ends every wait for the next task or for the pacer. The pacer only delays
// groups. It keeps their order and discards none.
//
// Few failures end a run: Config.MaxFailures, a failed sink, refused credentials, an unusable
// server or model, and servers that no longer answer. A server that is down or busy for a while
// costs no samples. A sample that fails on every try does not make a server count as down. With
// several servers, the samples of a server that is down continue at the others within seconds.
//
// The sink has a finished sample before its agent is removed from the server. The agent of a failed
// attempt is removed first, after its remaining tokens were copied. Samples that a stop cuts off
// remain to be done; they are not failures.
//
// If a prompt does not continue the row before it, a new row begins or the open row is repaired.
// The row records where the two differ, and the first ids of each (Divergence and Realigned of
// tokenize.Row). If a rebuilt prompt disagrees with its count, the error has both counts. Tokens
// that Align.MaxRowTokens cuts off are only counted, in Stats.
//
// # Over the life of a process
//
// After a kill the next process continues the run: the dataset has the samples, and the journal has
// the attempts that can still be active on the servers.
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │              Begin  key/1 at a                     finds no agent and makes key/2
//	  ├─ Open        Agent  key/1 agent                    finds the agent by its tags
//	  ├─ Run         Run    key/1 server run               waits for it and takes its tokens
//	  ├─ prompts, rows, reward                             does the same, from the record
//	  ├─ Append                               synced       does nothing
//	  │              End    key/1 none                     does nothing
//	  └─ Close                                             does nothing; agent.Clean removes
//	                                                       the agent
//
// A failed attempt ends in another order, at any step:
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │
//	  ├─ Close                                             finds no agent and makes key/2
//	  ├─ Append, if the sample fails for good  synced      does nothing
//	  │              End    key/1 class                    does nothing, or makes key/2
//
// Each journal entry is in the file before the step below it begins, and is synced some
// milliseconds later, without a wait. Append returns after the sync of the write-ahead log, so the
// sample is synced before End is written. A power cut can lose entries of steps that were made, but
// never a sample that has an End.
//
// Config.Left reports both sources. If they disagree, the dataset is right. Open attempts come
// first, at the endpoint where they were made, then the groups that were begun, then the rest. A
// Reattacher takes over an open attempt under its own number. If nothing can be taken over, the
// lookup fails, or its endpoint was removed from the run, the sample gets another attempt at no
// cost. No two attempts of a sample share a number, so the later attempt is always known.
//
// An attempt that was taken over is never worth less than a new attempt. An answer can carry
// prompts that the server does not store. If the answer is lost, the record can therefore prove
// less. The rollout then counts as gone if it proves less than Config.Require or lacks a call, and
// a new attempt could prove more. The sample is attempted again. A defect that a new attempt would
// have too, such as a call after a compaction with rebuilt prompts or contradictory tokens, is
// handled as in a received answer. Received answers show whether they carry prompts, in this
// process or, by Config.TurnsHavePrompts, in an earlier process. Until then, answers are assumed to
// carry them.
//
// A stop closes every agent that it can, and journals those attempts as cancelled. The other
// attempts stay open in the journal, as after a kill.
//
// # Two budgets
//
// Config.Retries is for failures of the infrastructure, and Config.DataRetries for failures of the
// policy. Class decides which is which. Data retries bias the data: if the policy fails a task half
// the time, only the successful half remains, and the dataset shows a better policy than the real
// one. So the default is 0, and the attempt column shows which rows needed a retry.
//
//	lost                                        cost of another attempt
//	a process, with all that it had in flight   nothing
//	an answer that the record has only in part  one of Retries, as after any lost connection; if
//	                                            none is left and other calls of the sample make
//	                                            rows, those are kept
//	a call that an answer would lack too        as Class defines for its reason
//
// Retries have a bias too. A long rollout is in flight longer and is lost more often. So if the
// network loses many answers, the dataset is short of long rollouts, unless the record has the
// answers in full. Compare the mean durations of Stats.Remade and Stats.Kept.
//
// # Memory
//
// Memory follows the samples in flight, not MaxInFlight. A worker holds the replies of one attempt
// and their rows, from the read until the sink has the rows. The backend bounds the bytes of
// replies held at once, even if the sink is slow. The sink bounds the bytes of accepted samples
// that wait for their shard.
//
// # As a library
//
// The Example of collector/agent (example_test.go) is a whole collection in some forty lines, with
// a stop and a resume. The Example of this package is the smallest. The command adds:
//
//   - a lock on the folder: two processes on one folder damage it (cmd/rollout/internal/runfolder)
//   - the identity of a run: a resume must use the same tasks, model and settings (runfolder), or
//     rows of two settings are mixed
//   - a reader of tasks (cmd/rollout/internal/tasks), with every check of a line
//   - the model's tokenizer and chat template for prompt.Config.Model (bpe.Load and chat.Load;
//     cmd/rollout/internal/model); without them only answers that carry prompts give rows
//   - removal of agents of a killed or stopped process: agent.Clean (cmd/rollout/internal/leftovers)
//   - Config.TurnsHavePrompts from earlier rows (runfolder.TurnsHavePrompts)
//   - retries: the default of Config.Retries is 0 here and 2 there
//   - MaxInFlight no higher than open files and memory allow, a preflight, the log, the metrics
package collector

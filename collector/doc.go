// Package collector runs agents on tasks. It claims samples, runs attempts on workers, classifies
// and retries failures, and appends finished samples to a sink. It does not depend on any wire or
// file format.
//
// # Words
//
//   - task: one or more user messages with an id
//   - sample: one repetition of a task, with an index from 0
//   - group: the samples of one task
//   - attempt: one try at a sample, numbered from 1
//   - rollout: the conversation of one attempt, from the first message to the last answer; it
//     becomes the rows of its sample
//   - run: one collection and its folder, across all processes that continue it; a run of the Letta
//     server is called a server run
//   - send: one request that sends messages to an agent, and the answer to it
//   - reply: the sends of one rollout, as returned by Agent.Run
//   - call: one generation by the model; each step of the server is one call
//   - turn: one element of the list "turns" in the server's answer
//   - span: a stretch of a row with one role
//   - row: one training sequence; a sample can have several rows
//   - segment: the position of a row among the rows of its sample
//   - grade: how well the prompts of a row are proven
//   - quarantine: to keep a call with an unknown prompt out of the rows; its tokens are stored as a
//     failure, with a reason
//   - record: the data that a server stores about a server run: the run, its steps, messages and
//     traces
//   - take over (reattach in the code): to continue an attempt that a dead process left open
//   - endpoint: one of the servers that a run uses
//   - claim: to take a sample in order to work on it; also a sample that has been taken
//   - permit: the gate's permission to work on a sample at an endpoint
//   - moved: another process of a fleet has the sample now
//   - censored: cut off by the tail policy, or at the deadline of its task
//   - filtered: stored in the data with keep=false
//   - whole: a group is whole when the sink has all its samples
//   - ahead: a group is ahead from the time it begins until it is acknowledged by the trainer,
//     filtered or failed
//   - shard: one data file; commit: the log entry that makes a shard exist
//
// # Where to find it
//
//	order of claims                                   feed.go (order), send.go, worker.go (claim)
//	tasks that arrive during a run                    backlog.go
//	when the next group can begin                     package pace, called in send.go
//	the life of a sample                              sample.go (worker.collect); its permit and its
//	                                                  waits: placement.go; its state between
//	                                                  attempts: retry.go; its end: finish.go
//	one attempt from start to end                     attempt.go
//	where a send is made                              collector/agent: agent.go (send), watch.go
//	                                                  (sendWatched)
//	classes of failures                               classify.go; sentinels: errors.go. HTTP errors:
//	                                                  collector/letta (classify.go); the server run of
//	                                                  a 400 or 500: collector/agent (explain.go)
//	what follows a failure                            package breaker decides, retry.go (followUp) acts;
//	                                                  package limit can lower the endpoint's limit
//	how a reply becomes rows                          outcome.go (attempt.sample)
//	where the grade of a row is decided               per call: tokenize (CallsFromTurns, in
//	                                                  turn_check.go) and collector/prompt (grade.go); a
//	                                                  row has the worst grade of its calls;
//	                                                  outcome.go enforces Config.Require
//	policy version of a call                          package policy; collector/agent: versions.go
//	lost answers                                      lostanswer.go
//	server runs of other programs                     collector/agent: reader.go; Task.Recorded
//	agents that are commands                          collector/harness; how their processes are
//	                                                  killed: collector/subprocess
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
//	folders and processes of commands           collector/harness: Agent.Close, Reattach and Clean
//	agents of a killed or stopped process       agent.Clean. The command calls it on resume and at
//	                                            the end of a run (cmd/rollout/internal/leftovers). The
//	                                            next preflight calls it for agents of preflights
//	all agents of a run, on request             the verb clean: cmd_clean.go
//
// # To add something
//
// A figure in the summary: if stored samples determine the figure, add a sum to
// cmd/rollout/internal/show (tally.go). If the figure depends on the reply or the aligner, add a
// field to Yield, set the field in outcome.go (a.alignerYield), and add a line to Yield.add. If the
// figure counts events, add a field to Stats and increment it where the event happens. Package show
// prints Yield and Stats in summary.go.
//
// A metric, in package cmd/rollout/internal/show: if the metric counts events, add a field to
// Metrics, a line to NewMetrics, a method that counts an event, and a call to that method in
// observer.go. If the metric is read on each scrape, add a line to metrics_stats.go. Then add a
// panel to configs/grafana-dashboard.json or an alert to configs/alerts.yml. A test fails if
// neither file uses the metric.
//
// A setting of the command: see the package comment of cmd/rollout/internal/config.
//
// A source of prompts:
//
//  1. In package tokenize, add a PromptSource (call.go), its word (words.go), its proof
//     (PromptSource.proves in row_check.go), and a line to the package comment.
//  2. In package prompt, extend Config.Force and the function New. Write a step that makes the
//     prompts, in a new file from_X.go, and call it in the function rebuild. Extend the tables in
//     the package comment. If the proof can have a gap, extend grade.go, because withdraw handles
//     only SourceStored.
//  3. If the prompts come with an answer, extend answerPrompts.note (lostanswer.go). Also extend
//     TurnsHavePrompts in cmd/rollout/internal/runfolder (resume.go). It determines from earlier
//     rows whether answers carry prompts.
//  4. In cmd/rollout, extend the setting (internal/config: words.go with Prompts.best, settings.go;
//     the comment on tokens.prompts in configs/collect.yaml) and the report
//     (internal/report/samples.go). Extend the table of grades in sink/README.md, and the samples
//     for the format tests (sink/sinktest/samples.go).
//
// A class of failure: in classify.go, add a constant of type Class, a line to the table in the
// comment of Class, and an entry to classes. If another package returns errors of the class, add a
// sentinel to errors.go. The linter reports every switch without a default that lacks the new
// class.
//
// # From a task to a row
//
//	tasks ─► claim ─► attempt ─► Agent.Run ─► Reply ─► Prompts ──► calls ─► Aligner ─► rows ─► Scorer ─► Sink
//	                     │                                                                        ▲
//	                     └── failure ── Classify ── breaker ── retry on a new agent, or a failure row
//
// worker.collect repeats three steps: acquire (wait for a permit), attempt, and followUp (get the
// breaker's decision, then wait for the retry or append the failure).
//
// Each part of a sample's state has one owner:
//
//	sample      task, key, cutoff (when it is cut)                   the feed creates it; read-only
//	retryState  budget, attempts so far, open attempt to take over   the worker, in retry.go
//	placement   endpoint, permit, waits                              the worker, in placement.go
//
// # Guarantees
//
// A failed attempt never crashes the process. If a sample fails for good, its last attempt becomes
// a failure row. Stats and the journal count the earlier attempts. At every moment, the following
// holds:
//
//	planned = committed + filtered + failed + skipped + remaining
//
// A moved sample is in none of these counts.
//
// At the deadline of its task, a group becomes whole, because all samples without a reply are cut.
// Three things can delay the cut, each for a bounded time: the removal of an agent
// (Config.CloseTimeout), a running check of the server (up to a minute), and the sink.
//
// A drain or a stop ends every wait for the next task or for the pacer. The pacer delays groups,
// but never reorders or discards groups.
//
// Only a few kinds of failure end a run, such as too many failed samples (Config.MaxFailures), a
// failed sink, rejected credentials, an unusable server or model, and servers that no longer
// answer. A server that is down or busy for a while does not make samples fail. A sample that fails
// on every try does not make a server count as down. If one of several servers goes down, its
// samples continue at the other servers within seconds.
//
// The sink accepts a finished sample before the sample's agent is removed from the server. If an
// attempt fails, its remaining tokens are copied and its agent is removed. If the sample has failed
// for good, its failure row is then appended. Samples that a stop interrupts stay unfinished and do
// not count as failures.
//
// If a prompt does not continue the open row, a new row begins or the open row is repaired. The row
// records the point where the prompt and the open row differ. It also records the first ids of both
// after that point (Divergence and Realigned in tokenize.Row). If the length of a rebuilt prompt
// differs from the server's count, the error includes both numbers. Tokens that Align.MaxRowTokens
// cuts off are not stored, but Stats counts them.
//
// # Over the life of a process
//
// After a kill, the next process continues the run. The dataset contains the finished samples, and
// the journal contains the attempts that might still be active on the servers.
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │              Begin  key/1 at a                     finds no agent and makes key/2
//	  ├─ Open        Agent  key/1 agent                    finds the agent by its tags
//	  ├─ Run         Run    key/1 server run               waits for it and reads its tokens
//	  ├─ prompts, rows, reward                             does the same, from the record
//	  ├─ Append                               synced       does nothing
//	  │              End    key/1 none                     does nothing
//	  └─ Close                                             does nothing; agent.Clean removes
//	                                                       the agent
//
// An attempt can fail at any step. It then ends in this order:
//
//	attempt          journal                  dataset      if the process is killed here,
//	                                                       the next one
//	  │
//	  ├─ Close                                             finds no agent and makes key/2
//	  ├─ Append, if the sample fails for good  synced      does nothing
//	  │              End    key/1 class                    does nothing, or makes key/2
//
// Each journal entry is written to the file before the step below it begins. The entry is synced
// some milliseconds later, and no step waits for that sync. Append returns after the sync of the
// write-ahead log, so the sample is synced before End is written. A power failure can lose the
// entries of completed steps, but never a sample that has an End.
//
// Config.Left combines the journal and the dataset. If they disagree, the dataset takes precedence.
// Open attempts come first, at the endpoint where they were made. The groups that were begun come
// next, and then the rest. An attempt that a Reattacher takes over keeps its number. The sample
// gets another attempt at no cost if nothing can be taken over, if the lookup fails, or if the
// endpoint was removed from the run. Each attempt at a sample has its own number, so the later of
// two attempts is always known.
//
// A takeover never yields less than a new attempt would. An answer can carry prompts that the
// server does not store. If such an answer is lost, the server's record proves less than the answer
// would have. In that case, the rollout can lack a call or miss the grade in Config.Require. If a
// new attempt could prove more, such a rollout counts as gone, and the sample gets a new attempt.
// Some defects would recur in a new attempt, such as contradictory tokens or, with rebuilt prompts,
// a call after a compaction. These defects are handled as if the answer had been received. The
// answers that this process receives show whether answers carry prompts. Config.TurnsHavePrompts
// reports what earlier processes found. Before the first answer and without TurnsHavePrompts,
// answers are assumed to carry prompts.
//
// A stop closes every agent that it can close, and journals the attempts of these agents as
// cancelled. The other attempts stay open in the journal, as after a kill.
//
// # Two budgets
//
// Config.Retries is for failures of the infrastructure, and Config.DataRetries for failures of the
// policy. The Class of a failure decides which budget applies. Data retries bias the data. If the
// policy fails a task half the time, only the successful half remains, so the dataset shows a
// better policy than the real one. For this reason the default is 0, and the attempt column shows
// which rows needed a retry.
//
//	lost                                        cost of another attempt
//	a process, with all its samples in flight   nothing
//	an answer only partly in the record         one of Retries, as after any lost connection; if
//	                                            none is left and other calls of the sample make
//	                                            rows, those rows are kept
//	a call that an answer would lack too        depends on the class of its quarantine reason
//
// Retries bias the data too. A long rollout is in flight longer and is lost more often. So if the
// network loses many answers, the dataset has too few long rollouts, unless the server's record
// contains the complete answers. To detect this bias, compare the mean durations of Stats.Remade
// and Stats.Kept.
//
// # Memory
//
// Memory use depends on the number of samples in flight, not on MaxInFlight. A worker keeps the
// replies of one attempt and their rows in memory until the sink has the rows. The backend limits
// the total size of the replies in memory, even if the sink is slow. The sink limits the total size
// of the accepted samples that wait for their shard.
//
// # As a library
//
// The Example in collector/agent (example_test.go) is a complete collection in about forty lines,
// with a stop and a resume. The Example in this package is even smaller. The command adds:
//
//   - a lock on the folder, because two processes that use one folder would damage it
//     (cmd/rollout/internal/runfolder)
//   - the identity of a run: a resume must use the same tasks, model and settings (runfolder);
//     otherwise the dataset would mix rows made with different settings
//   - a task reader (cmd/rollout/internal/tasks) that validates every line
//   - the model's tokenizer and chat template for prompt.Config.Model (bpe.Load and chat.Load;
//     cmd/rollout/internal/model); without them, only answers that carry prompts yield rows
//   - removal of agents that a killed or stopped process left: agent.Clean
//     (cmd/rollout/internal/leftovers)
//   - Config.TurnsHavePrompts from earlier rows (runfolder.TurnsHavePrompts)
//   - retries: Config.Retries is 0 by default, but the command's default is 2
//   - a MaxInFlight that fits the open-file limit and the memory, a preflight, a log and metrics
package collector

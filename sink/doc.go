// Package sink makes finished samples durable. It first writes each sample to a write-ahead log. It
// then writes the sample's rows to a Parquet or Arrow shard, and its failures to a separate shard.
// A shard belongs to the dataset only if an entry of the commit log names it. All readers ([Log],
// [Verify] and the Python package in python/) use the commit log to find the shards.
//
// # Schema
//
// A [StoredRow] is a row of a data shard. A [StoredFailure] is a row of a failure shard. In both
// formats, the columns of schema version 1 are the fields of these structs, in the same order. A
// row is one training sequence of T tokens, unshifted and unpadded:
//
//	             prompt                assistant           tool      assistant
//	input_ids    p p p p p p p p p p   a a a a a a a a a   t t t t   a a a a a
//	loss_mask    0 0 0 0 0 0 0 0 0 0   1 1 1 1 1 1 1 1 1   0 0 0 0   1 1 1 1 1
//	logprobs     0 0 0 0 0 0 0 0 0 0   l l l l l l l l l   0 0 0 0   l l l l l
//	turn_offsets 0                     10                  19        23        28
//	turn_roles   0                     1                   2         1
//
// The rows of one sample share sample_key and rollout_id, and are adjacent in one shard.
// segment_index numbers these rows from 0, and segment_count is the number of these rows. chain is
// the number of the row's conversation within the sample, and chain_kind is the kind of the
// conversation:
//
//	main       the conversation about the task; chain 0, and chains that fork from it
//	subagent   a conversation that the agent started with another agent
//	auxiliary  a conversation of the harness with itself, such as a title or a summary
//
// parent_chain and parent_step identify the call that started a subagent: the chain of the call, and
// the call's element of step_ids. A chain comes after its parent_chain.
//
// The rows of a sample are in the order of their chains, and a chain can have several rows or none.
// A sample from a Letta server has only the main chain.
//
// In Parquet, a list is a three-level LIST. Its elements are required and have the name element. In
// Arrow, a list has a non-nullable field named element. pyarrow reads the same schema from both
// formats, including nullability and metadata.
//
// The nullable columns are parent_chain, parent_step, versions, the five columns with values from
// inside the calls (weight_versions to sampling_mask_lengths), reward, reward_details, divergence,
// the sampling parameters, messages, metadata and the last four columns. Null never means zero. In divergence, null means
// that the row is not a fork and that no part of the row was realigned. In all other columns, null
// means that the value is unknown or was not set.
//
// routed_experts is a binary column: the bytes of tokenize.Experts. The pair rollout.routed_experts
// in the metadata describes its shape. It is a JSON object with the dtype and the shape of a token
// for numpy, and the number of experts. All rows of a dataset have this shape (Config.Experts).
//
// policy_version_min and policy_version_max are the lowest and the highest policy version of the
// sampled tokens in the row. If the version of any sampled token is unknown, both columns are null.
// keep and keep_reason contain the decision of the filter (Config.Judge). If the filter made no
// decision, keep is null.
//
// # Flags
//
// The flags column contains words from this closed list:
//
//	cut, length           what ended the row; see below
//	client_tool_context   the row has the result of a client tool that the model saw as empty text
//	surplus_logprobs      the engine sent more log-probabilities than ids; the surplus was dropped
//	realigned             tokens from the next prompt replaced the end of an output
//	reattached            the response of a server run was lost; the tokens come from the run's record
//	spliced               in a prompt, the tap inserted the tokens or texts that the engine had sampled
//	after_stop            an output has tokens after its first end-of-turn id
//	padded_id             an id is unknown to the tokenizer but below the engine's vocab_size
//
// Tokens that caused after_stop or padded_id are trained on like any other tokens. If
// tokens.after_stop is mask, the tokens after an end-of-turn id have mask 0. n_unscored counts all
// sampled tokens in the row that have mask 0, including these tokens. Because of padded ids, a
// trainer needs an embedding table that is as large as the engine's. A table with one embedding for
// each id of the tokenizer can be too small.
//
// # How a row ends
//
// Three limits can end a row or a sample before the policy ends it. Each of them is recorded
// differently:
//
//	max_row_tokens cut the row      flags: cut        truncated   at tokens.max_row_tokens, always at the
//	                                                              end of an output; the rest is in no row
//	the engine's token limit        flags: length     truncated   max_new_tokens or the end of the context
//	ended the row's last output                                   ended it; finish_reasons ends with length
//	the sample used up its steps    status: max_steps             every output of its rows is complete
//
// truncated is true if flags contains cut or length. The policy then did not choose where the row
// ends. truncated describes only the last output of the row. If the engine's token limit ended an
// earlier output, the entry for that output in finish_reasons is length, and the row continues. If
// the engine's token limit ended the sample, the status is truncated, and the column truncated is
// true in the sample's last row. If the next prompt does not fit into the model's context, the
// sample fails with class context_overflow.
//
// finish_reasons contains the engine's finish reason for each call in the row. A reason is known
// only if one of these facts proves it:
//
//   - the call's trace
//   - an output as long as the limit in the request to the engine (length)
//   - the server's stop reason (length)
//   - a last id at which the engine is known to stop (stop)
//
// An empty string means that the reason is unknown. If the last finish reason of a row is empty,
// the row might be truncated although truncated is false. If the engine aborts an output, the
// output never becomes data. The sample is retried. If the retries fail too, the sample fails with
// class aborted.
//
// The metadata of each shard contains the keys rollout.schema_version, rollout.run_id and
// rollout.kind, and the key-value pairs from Config.Meta. The rollout command adds other keys, such
// as rollout.versions_source. Its value lists the possible sources of the policy versions,
// separated by commas: trace, url, flag and set-version, or none. See package policy. The user or
// the trainer provides the versions from flag and set-version, and these versions are not verified.
//
// # Files
//
//	RUN/wal/00000001.wal                     samples that are not yet in a commit
//	RUN/data/part-<run>-0-<n>-<hash8>.parquet       or .arrow: rows
//	RUN/failures/part-<run>-0-<n>-<hash8>.parquet   failures, always Parquet
//	RUN/_commits/00000000000000000001.json   the log, one entry per commit and per merge
//	RUN/replaced/{data,failures,_commits}/   files that merges replaced, until no reader needs them
//	RUN/ack.json                             the last Cursor that a reader acknowledged
//	RUN/README.md                            the dataset card, for people and load_dataset
//	RUN/{wal,data,failures,_commits}/.tmp-*  files being written, or leftovers
//	RUN/orphans/                             files that recovery and repair set aside
//	RUN/scores/0001/{scores,_commits}/       a scores set; see below
//
// No two commits have the same n in the names of their shards. In the name of a merged shard, m
// replaces 0, and n is the number of the first entry that the merge replaces. If the epoch is not
// 0, m follows the epoch instead, and n counts the merges of the epoch. hash8 is the first 8 hex
// digits of the file's SHA-256. An entry is a [Commit] in JSON. An entry names at most one data
// shard and one failure shard, with their sizes, digests and counts. It also lists the commit's
// samples. The files of a commit never change.
//
// The counts of tokens contain the terms of this equation. In an entry, terms of zero are omitted:
//
//	sampled = trainable + unscored + trimmed                           tokens of the data shard
//	        + auxiliary + superseded + cut_answers + quarantined       lost tokens of the failure shard
//
// The first three terms of lost tokens belong to calls that are valid but not trained on: calls of
// auxiliary conversations, and answers that were superseded or cut. All other tokens in failures are
// quarantined. See [tokenize.Balance].
//
// An entry is one line. The line ends with the checksum of the entry, which is the SHA-256 of all
// bytes before the comma that precedes "sha256":
//
//	{"version":1,"seq":1,"run_id":"…",…,"samples":[…],"sha256":"<64 hex digits>"}\n
//	└───────────── these bytes are hashed ──────────┘
//
// The samples are listed in the order of their rows. Each sample contains the index of its group in
// groups. The groups are listed in order of first appearance:
//
//	"groups":[{"id":"g0","size":8},{"id":"g1","size":8}]
//	"samples":[{"key":"…","attempt":1,"rows":2,"failures":0,"group":0,"index":3},…]
//
// To find the rows of a group, a reader needs only the log: it adds up the row counts of the
// samples from the start of the shard. size is group_size, and index is sample_index. A group is
// whole when the log has a sample for each index below the group's size. It does not matter whether
// these samples have rows, failures, or neither. A success in a later entry can supersede a
// failure. If a sample's rows have keep=false, the member filtered contains the keep_reason of
// these rows. If a tap recorded calls that the server's answer does not show, the sample's member
// unshown counts these calls, for example "unshown":{"retry":1}. See [tokenize.Unshown].
//
// Later versions of the format will keep the checksum in this place. A reader verifies the checksum
// before it reads the version, so that it does not mistake a damaged entry for an entry of a newer
// version. All entries of a log have the same run_id. The member nonce is a random text of the
// process that wrote the entry.
//
// # Buckets
//
// With Config.Store, the committed files are in a store, such as a bucket, and not in the run's
// folder. The store has neither a dataset card nor an ack.json:
//
//	STORE/data/part-<run>-<epoch>-<n>-<hash8>.parquet, failures/, _commits/
//	STORE/_checkpoints/<epoch>.{log,tail}.zst   copies of entries; readers need fewer requests
//	RUN/wal/, RUN/{data,failures}/.tmp-*
//	RUN/store.json                           STORE and <run>, so that no other run uses RUN/wal/
//
// Several processes can try to write to the same log, on any machine. Only one of them can commit.
// These are the rules:
//
//   - No entry of the log is ever deleted, moved or replaced. If a list contains an entry, all
//     earlier entries exist. The first process that puts an entry wins. All entries contain a nonce,
//     so two processes never put the same bytes. A log that was copied from a folder can lack
//     entries that a merge has replaced.
//   - Create appends a claim, an entry without samples: {"kind":"claim","epoch":3,"worker":"…",…}.
//     Its epoch is higher than the epochs of all earlier claims. If the name of the entry is taken,
//     Create returns ErrFenced.
//   - Every later entry contains the epoch and the number of the claim that it depends on. Readers
//     treat an entry as damaged unless that claim is the last one below it.
//   - If the name of a process's next entry is taken, the process ends with ErrFenced. Its samples
//     stay in its write-ahead log. The next Create with this folder drops the samples that are
//     already in the log.
//   - A shard is verified in the store before its entry is written. n is never used twice in an
//     epoch.
//   - After its claim, Create deletes the shards of lower epochs that no entry names. The processes
//     of these epochs can no longer commit them. Create keeps the shards of its own epoch and of
//     higher epochs.
//   - A sealed entry, {"kind":"sealed",…}, ends the log ([Dataset.Seal]). No entry can follow it.
//   - Merges do not move or delete anything. The shards that they replaced are deleted only after the
//     end of the log, because then no process can name a shard ([Garbage]).
//
// A folder has no claims, and the caller must ensure that only one process writes. If another
// process writes to the log anyway, ErrFenced ends this process too.
//
// A commit to a bucket needs two requests per shard (PUT, HEAD), one for the entry, and one for a
// checkpoint after every third entry. A reader of a log of 1,000 commits needs about 6 requests,
// Create at most 10, and Create of a new log 2. Without checkpoints, a reader needs one request per entry, of which 8 are
// made at the same time. To read a whole shard, it needs one request and one more per 8 MB. It keeps
// the shard in memory, or in an unnamed temporary file in the system's folder if the shard is larger
// than 8 MB. For one row of a Parquet shard, a reader fetches only the footer and the row group if
// the store keeps the shard's SHA-256; see [Log.Row].
//
// # Scores
//
// A scores set has new scores for the samples of a run. The folder of a set contains a commit log of
// its own, with the same entries and the same steps of a commit. A [ScoresWriter] writes the set. Its
// shards are always Parquet. They have the kind scores, and their rows are of type [StoredScore]. The
// entries have no samples, because the shards contain the keys. There is no write-ahead log, because
// an interrupted process computes the scores again. OpenScores removes its leftovers. A sealed entry
// ends the log. Without this entry, the set is not complete, and [ReadScores] does not read it.
//
// The names of the sets are numbers. Readers use the newest complete set ([Log.UseScores]). The
// scores replace the columns reward, reward_details, keep and keep_reason of all rows of a sample.
// The rows themselves do not change, and merges do not affect the scores, because a score belongs to
// a key. If a set lacks a sample, the sample was collected later, and its reward is null.
//
// # Merges
//
// Config.CommitGroups produces many small commits. A merge is an entry that replaces several
// entries. It lists the samples of these entries in the same order. It names at most one shard of
// each kind, and this shard contains the rows of the replaced entries, bit for bit. A merge has two
// members that a commit does not have:
//
//	"replaces":[[1,8],[10,17]]                     ranges of replaced entries, including both ends
//	                                               and all entries that these had replaced; comes
//	                                               early, so the first bytes identify a merge
//	"merged":[{"seq":1,"samples":4,"tokens":90},…] the commits that the samples came from: the
//	                                               first 4 are from commit 1, whose rows have
//	                                               90 tokens; also the commit's created_at
//
// A merge does not add samples or change their order. The logical order of a dataset is the order
// of its commits by number, regardless of the shards that hold their rows. This order never
// changes. All readers use this order, and [Log.Commits] is in this order. A reader accepts a
// missing entry only if another entry replaces it. A reader skips an entry that still exists but
// has been replaced.
//
// During Run, one goroutine makes the merges. For each merge, it selects at least Config.MergeAt
// entries that are neighbors in logical order and are not above a certain size tier. The largest of
// these entries has at most half of their total size. Each size tier is eight times as large as the
// previous tier. A row is therefore rewritten each time its shard grows eightfold, which happens at
// most five times. A merge never exceeds Config.MaxShardBytes or 65,536 samples. Commits with more
// than Config.RowGroupTokens tokens are never merged. Neighbors whose shards have different
// metadata are never merged either. The steps of a merge, in order:
//
//  1. check the digests of the replaced shards, copy their rows to new shards, and seal the new
//     shards as in a commit
//  2. write the entry as in a commit            ◄── the merge: the replaced entries stop counting
//  3. write the card
//  4. move the replaced shards to replaced/, fsync the folders
//  5. move the replaced entries
//  6. delete the moved files when the acknowledged cursor is past all of their commits
//     ([Dataset.Acknowledge]), or after ten minutes if no reader has ever acknowledged any groups
//
// With Config.Store, a merge ends after step 2.
//
// Readers see no change before step 2. If the process is killed after step 2, Create completes the
// remaining steps. If a reader does not find a shard at its path, it looks in replaced/. If the
// shard is not there either, the reader rereads the log to find the shard that now holds the rows.
// An error in step 2 ends the run. Any other error is logged, and the merger retries after one
// minute, then after two minutes, and so on, up to one hour. The merger skips damaged entries. It
// works at most half of the time, so that the writer has priority. The merger keeps two row groups
// in memory: it reads from one of them and writes to the other.
//
// The dataset card lists the committed files of each configuration, so that load_dataset("RUN")
// from Hugging Face's datasets library returns the rows. The configuration default contains the
// data shards. If the data shards are Parquet, the configuration failures contains the failure
// shards. The card is rewritten after a commit is durable, so it is never ahead of the log. The
// card can lag behind the log by 1/64 of the commits. With Config.CommitGroups, it can lag by any
// number of commits. The card is updated at the first commit that is at least 30 seconds after the
// last rewrite. It is also updated by Create, after each merge, and at the end of Run. The card names
// the newest complete scores set. [WriteCard] updates it when a set is complete. A README.md
// without the card's second line belongs to the user and is not replaced. If the card cannot be
// written, the error is logged and the run continues.
//
// A Parquet shard uses zstd at its fastest level and version 2 data pages of 512 KB. Once a row
// group has reached Config.RowGroupTokens tokens, it is closed at the end of the current group of
// samples. It is closed within a group of samples only if it reaches twice that number of tokens. A
// reader that needs one group of samples therefore usually decodes only one row group. An Arrow
// shard is an IPC stream. It is uncompressed so that readers can memory-map it. A batch is closed
// when it reaches Config.RowGroupTokens tokens. The stream ends with the mark ff ff ff ff 00 00 00
// 00.
//
// A segment of the write-ahead log is a file in the format of package frame. Its header contains
// the kind "wal", version 1, and the segment's number. A mark is written after each sync. The last
// mark of a segment is durable before the next segment is created. A payload contains one sample:
// the fields of tokenize.Sample in order, in the format that walencode.go describes. The format
// omits the log-probabilities of tokens with mask 0. If half of the tokens are sampled, a payload
// takes about 6 bytes per token. It takes at most 1.05 times the raw size.
//
//	┌────────┬───────────┬───────────┬──────────┬───────────┐
//	│ header │ frame: s1 │ frame: s2 │ mark     │ frame: s3 │   s1 s2: one sync; s3: not yet
//	└────────┴───────────┴───────────┴──────────┴───────────┘
//
// A reader refuses entries, shards and segments that a newer version of the program wrote
// (ErrNewer).
//
// # From Append to a commit
//
//	Append ──► wal/ ──┬─ sync ─► Append returns nil: the sample is durable
//	                  │
//	                  └──► queue of the writer ─► held until its ─► open ─► commit ─► done(nil)
//	                                              group is whole    shards  └─► its segment is deleted
//
// One sync of the write-ahead log can cover several samples. The first sample after a pause is
// synced immediately. The next sync starts at least 20 ms after the previous sync and covers all
// samples that arrived in between. A sample therefore waits at most 20 ms plus the duration of the
// sync. (The first sync of a segment also syncs the folder. Before a new segment is created, the
// previous segment is synced again.) If a sample fails and a later attempt succeeds, the failure is
// never committed after the success.
//
// The samples of a group finish at different times, but trainers need them together. The writer
// therefore holds a sample until every index of its group has an outcome: data or a failure. It
// then writes the samples of the group in index order into one shard. Held samples are durable, so
// they need not stay in memory. The writer keeps held samples in memory until they take half of
// Config.MaxBytesInFlight, and releases the others. If a call to Append waits for the budget, the
// writer releases all held samples. It later rereads released samples from the write-ahead log. An
// incomplete group is written when its first sample is Config.MaxShardAge old, or when the writer
// has made two commits since that sample arrived. An incomplete group is also written if more than
// 16,384 samples are held, and at Close. A sample is not held if its group has no id, if the group
// has a size of 1, or if the size is above 16,384. Recovery holds samples in the same way.
//
// With Config.CommitGroups, a group waits for its last sample without a time limit. A whole group
// is committed as soon as no other samples are waiting for the writer, and after 20 ms at the
// latest. Groups that become whole in the same sync of the write-ahead log therefore share a
// commit. Such a commit takes four syncs, or six with failures, in addition to the sync of the
// write-ahead log. For 8 samples of 1,000 tokens each, a commit takes about 5 ms of CPU time. Even
// a very large group is committed in a single commit, except with Config.Store, if it exceeds
// Config.MaxShardBytes. When the process ends, the samples of
// incomplete groups stay in the write-ahead log. The next Create recovers these samples, and the
// next Run continues to hold them.
//
// A segment ends when the writer starts to seal its shards. It is deleted when all of its samples
// are in commits. The log therefore has about one segment for the open shards, and up to two more
// segments for held samples. With Config.CommitGroups, a segment ends when it reaches 4 MiB. A held
// sample then delays only the deletion of its own segment. If a write or sync of the log fails, the
// run ends, and the samples that waited for it are not reported as durable. The log does not retry
// a sync, because a second sync can succeed although the first sync lost data.
//
// # Commit protocol
//
// The rows and failures of a sample go to different files. The files must appear in the dataset
// together or not at all. The writer therefore keeps one open shard of each kind, seals both shards
// together, and names both in one entry. The steps, in order:
//
//  1. write data/.tmp-… and failures/.tmp-…, and compute their digests
//  2. fsync each file
//  3. reopen each file and check its size, SHA-256, schema, row count and end mark
//  4. rename each file to part-…            no entry names it yet
//  5. fsync its folder
//  6. write _commits/.tmp-…, fsync
//  7. link to _commits/<seq>.json ◄── the commit: readers now see all of it
//  8. fsync _commits
//  9. delete segments whose samples are all committed; call done(nil) for each sample
//
// Linking fails if the name exists, so no entry is ever overwritten. An entry is complete before it
// gets its name. A sample that has neither rows nor failures is committed too, because the entry
// contains its key. In a bucket, steps 4 to 8 are two puts: each file, whose size and digest are
// then checked, and the entry, with If-None-Match.
//
// Shards are sealed when they reach Config.MaxShardBytes, when their first sample is
// Config.MaxShardAge old, and at Close. A sample's rows are never split across shards.
//
// If a step fails, the run ends with a *ShardError. Readers see no change before step 7. If step 7
// or 8 fails, it is unknown whether the entry exists. The done functions of the samples receive the
// error, and the next Create reads the log to find out whether the samples are committed.
//
// # Fsyncs
//
// These syncs happen in addition to the steps of a commit or a merge:
//
//	fsynced                                 when                                   before
//	───────────────────────────────────────────────────────────────────────────────────────────────────
//	a segment of the write-ahead log        at most every 20 ms, for all samples   Append returns nil
//	                                        that arrived in between
//	wal/, for the name of the segment       at the first sync of the segment       Append returns nil
//	the last mark of a segment              when the next segment begins           the next one is created
//	the run's folder                        when Create has made its folders       Create continues
//	an empty file in _commits/, then        when Create checks that it can         the log is read
//	_commits/                               make a commit there
//	_commits/                               as the first step of recovery          anything is removed
//	ack.json, then the run's folder         by Acknowledge                         Acknowledge returns
//	wal/                                    when Create has recovered              Create returns
//	orphans/ and the run's folder           when a file is set aside               the next step
//	a repaired segment, then wal/           by RepairPlan.Apply                    the next segment
//	the card, then the run's folder         after a commit, by Create and WriteCard the next commit
//
// Each step waits for its sync. Removals are not synced, because a file that reappears after a
// power failure does no harm. If a segment reappears, its samples are already in commits. If a
// temporary file reappears, readers ignore it. If a sync of a commit or of the write-ahead log
// fails, the run ends, and the sync is never retried.
//
// Other packages own the other files in a run's folder. Package journal documents the syncs of
// attempts. Package runfolder documents the syncs of run.json and tasks.jsonl.
//
// # Exactly once
//
// A sample key is done when a commit contains the sample with rows, or with neither rows nor
// failures. Append then refuses the key (ErrCommitted). A key that has only failures counts as
// failed, and a later success supersedes the failures. Two failures with the same key have
// different attempt numbers, so recovery identifies a failure by key and attempt.
//
// This package guarantees: if Append returned nil for a sample, the sample is in the dataset
// exactly once after the next Create on the folder, regardless of how the process ended. With
// Config.CommitGroups, the guarantee applies only when the sample's group is whole. If Append was
// interrupted, it is unknown whether the sample is in the dataset. With Config.Store, the
// write-ahead log is in the run's folder. If that folder is lost, its uncommitted samples are lost,
// and another process must run them again.
//
// # Recovery
//
// Before Create returns, it brings the folder into the state of a closed dataset.
// [Dataset.Recovered] reports what Create did. If recovery is interrupted, the next Create restarts
// it. The steps, in order:
//
//  1. fsync _commits, so that the log on disk is complete before anything relies on it
//  2. move replaced files to replaced/, remove temporary files, move shards that no entry
//     names to orphans/
//  3. write all samples that are in the write-ahead log but in no entry to new shards, and commit
//     these shards; keep groups together
//  4. delete the segments, fsync wal
//
// With Config.CommitGroups, step 3 commits only whole groups. It writes the other samples to a new
// segment and renames that segment over the last one before step 4 deletes the other segments. The
// new segment therefore has no torn end, and Run continues with the next segment number. As before
// the kill, these samples are durable but not in a commit. [Log.Waiting] and [ReadLedger] report
// these samples.
//
// Before recovery, Create reads every entry and checks that every committed file exists and has the
// committed size. Create also reads the shards that no entry names. If such a shard contains a
// sample that is neither in a commit nor in the write-ahead log, the last entry of the log has been
// lost (ErrLostCommit). The loss of the last entry leaves no gap in the log, so there is no other
// way to detect the loss. In a bucket, a checkpoint with a later entry proves the loss instead.
// Create does not check digests, but [Log.CheckDigests] and [Verify] do.
//
// Recovery does not adopt uncommitted shards. All of their samples are in the write-ahead log.
// Rewriting these samples is cheaper than proving that a shard holds exactly the right rows.
//
// The last segment can have a torn end. This is a frame that is cut short or has a sector of zeros,
// and that no later whole frame records as durable. The sample in that frame was never reported as
// durable, so recovery drops the frame. All other unreadable bytes count as damage. A torn or
// missing end of an earlier segment also counts as damage. If the write-ahead log is damaged,
// Create returns a *CorruptError with the file and the offset. [PlanRepair] counts the samples that
// can be saved, and [RepairPlan.Apply] saves them.
//
// When the context of Run is done, the writer abandons the open shards and passes the cause to the
// done functions. A sample for which Append returned nil is not lost, because the next Create
// commits it. Close commits everything and leaves no segment. With Config.CommitGroups, Close
// leaves the samples of incomplete groups in the write-ahead log.
//
// Only one process at a time is allowed to have a run's folder open. The caller must ensure this
// with a lock. Readers need no lock.
//
// # Memory and goroutines
//
// Config.MaxBytesInFlight limits the memory for samples that have been accepted but not yet
// encoded. At the limit, Append blocks. Held samples count toward this limit until the writer
// releases them. After the release, the writer keeps about 100 bytes per held sample. It rereads
// released samples one at a time. The writer keeps one open row group in memory. The row group
// takes 17 MB for a million tokens, or 20 MB for a group of two million tokens. With 90 KB of
// messages for every 8,000 tokens, it takes 20 MB or 25 MB. With Arrow, the writer keeps one batch
// in memory instead. A batch takes about 9 bytes for each of Config.RowGroupTokens tokens, plus its
// text, and up to four times that while its memory grows. A million tokens take 35 MB, or 75 MB
// with these messages. The writer reuses this memory for later batches, except arrays larger than
// 16 MB. The write-ahead log and the writer each have a buffer as large as the largest encoded
// sample. The writer uses its buffer to reread samples. If such a buffer is larger than 4 MB, it is
// dropped later. Run owns all goroutines: one for the writer, one for the write-ahead log, and one
// for merges. Each open file belongs to one of these goroutines.
//
// # Reading order
//
//	accepting samples       dataset.go; sample.go checks them, budget.go bounds their memory, keyid.go
//	                        stores the keys that are done
//	the write-ahead log     wal.go, queue.go; walencode.go and waldecode.go encode and decode a sample,
//	                        walread.go reads segments
//	file locations          location.go, config.go; ranged.go reads a part of a shard in a bucket
//	open shards, a commit   hold.go, judge.go, writer.go, shard.go, commit.go; entry.go encodes and
//	                        decodes an entry, entry_samples.go is a fast parser for its samples
//	logs in a bucket        claim.go contains claims, the end of the log, and the deletion of shards
//	                        of lower epochs; fetch.go reads the entries, checkpoint.go contains the
//	                        checkpoints, tag.go the tag of the local folder, and garbage.go finds what
//	                        no reader needs
//	merges                  merged.go defines the members that only a merge has; merge.go,
//	                        mergewrite.go, mergeretry.go and replaced.go make merges; cursor.go
//	                        stores the acknowledgements of readers
//	the dataset card        card.go, card_text.go
//	the columns of a row    schema.go, stored.go
//	Parquet                 parquet.go, codec.go; scan.go, part.go and facts.go read it
//	Arrow                   arrow.go
//	recovery                recover.go, lost.go; repair.go repairs a damaged dataset
//	readers                 follow.go (the logical order), read.go (Log), moved.go, peek.go (one row),
//	                        waiting.go, ledger.go, groups.go, hasrows.go
//	scores sets             scores.go writes them, scoresread.go reads them
//	a copy of a dataset     store.go
//	checks                  check.go, verify.go, verifybucket.go, verifyshard.go, verifywal.go,
//	                        verifyfiles.go
//	configuration, errors   config.go, format.go, fs.go; errors.go
package sink

// Package sink makes finished samples durable. It first writes a sample to a write-ahead log. Then
// it writes the sample's rows to Parquet or Arrow shards and its failures to separate shards. A
// commit log names the shards that exist. All readers (Log, Verify, the Python package in python/)
// follow the commit log and nothing else.
//
// # Schema
//
// A StoredRow is a row of a data shard, a StoredFailure a row of a failure shard. Their fields are
// the columns of schema version 1, in order, in both formats. A row is one training sequence of T
// tokens, unshifted and unpadded:
//
//	             prompt                assistant           tool      assistant
//	input_ids    p p p p p p p p p p   a a a a a a a a a   t t t t   a a a a a
//	loss_mask    0 0 0 0 0 0 0 0 0 0   1 1 1 1 1 1 1 1 1   0 0 0 0   1 1 1 1 1
//	logprobs     0 0 0 0 0 0 0 0 0 0   l l l l l l l l l   0 0 0 0   l l l l l
//	turn_offsets 0                     10                  19        23        28
//	turn_roles   0                     1                   2         1
//
// The rows of one sample share sample_key and rollout_id, are numbered by segment_index of
// segment_count, and are adjacent in one shard. Lists are Parquet's three-level LIST with
// required elements named element, and Arrow's list with a non-null field named element. In
// pyarrow both formats have the same schema, including nullability and metadata.
//
// The nullable columns are versions, reward, reward_details, divergence, the sampling parameters,
// messages, metadata and the last four columns. Null means "unknown", never zero. Only in
// divergence does null mean "none": the row is not a fork and no part of it was realigned.
//
// policy_version_min and policy_version_max are the range of versions over the sampled tokens, or
// null if any of these is unknown. keep and keep_reason are the decision of a filter
// (Config.Judge), or null if the filter did not decide.
//
// # Flags
//
// The column flags holds words of a closed list:
//
//	cut, length           how the row ends, see below
//	client_tool_context   a client tool result that the model saw as empty text
//	surplus_logprobs      the engine sent more log-probabilities than ids; the rest was dropped
//	realigned             the end of an output was replaced by the tokens of the next prompt
//	reattached            the answer of a server run was lost; the tokens come from its record
//	spliced               the tap sent the engine tokens that the engine had sampled itself
//	after_stop            an output has tokens after its first end-of-turn id
//	padded_id             an id that the tokenizer lacks, below the engine's vocab_size
//
// Tokens that caused after_stop or padded_id are trained on like all others. With
// tokens.after_stop: mask, the tokens after the end of a turn have mask 0. n_unscored counts every
// sampled token of the row with mask 0, including these tokens. A reader that looks up embeddings
// by id needs as many embeddings as the engine has, not as many as the tokenizer has ids.
//
// # How a row ends
//
// Three things can end a row or a sample before the policy ends it. Each has its own column:
//
//	max_row_tokens cut the row      flags: cut        truncated   at tokens.max_row_tokens, always at the
//	                                                              end of an output; the rest is in no row
//	the engine's token limit        flags: length     truncated   max_new_tokens or the end of the context
//	ended the row's last output                                   ended it; finish_reasons ends with length
//	the sample used up its steps    status: max_steps             every output of its rows is complete
//
// truncated is cut or length: the policy did not choose the end of the row. It describes the
// row's last output only. If the limit ended an earlier output, finish_reasons has length there
// and the row continues. status is truncated if length ended the sample, and then the sample's
// last row is truncated too. If the next prompt does not fit into the context, the sample fails
// with class context_overflow.
//
// finish_reasons has the engine's finish reason for each call of the row, if one of these proves
// it: the call's trace; an output as long as the limit in the request to the engine (length); the
// server's stop reason (length); a last id at which the engine is known to stop (stop). An empty
// string means unknown, so a row whose last finish reason is empty can be truncated although
// truncated is false. An output that the engine aborted is not data: the sample is retried, and
// fails with class aborted if the retries do not help.
//
// Each shard has the key-values rollout.schema_version, rollout.run_id, rollout.kind and the pairs
// of Config.Meta. The command adds others, such as rollout.versions_source. It lists the possible
// sources of the numbers in versions, separated by commas: trace, url, flag and set-version, or
// none (package policy). Versions from flag and set-version are claims of the user.
//
// # Files
//
//	RUN/wal/00000001.wal                     samples that no commit holds yet
//	RUN/data/part-<run>-0-<n>-<hash8>.parquet       or .arrow: rows
//	RUN/failures/part-<run>-0-<n>-<hash8>.parquet   failures, always Parquet
//	RUN/_commits/00000000000000000001.json   the log, one entry per commit and per merge
//	RUN/replaced/{data,failures,_commits}/   files that merges replaced, until no reader needs them
//	RUN/ack.json                             the last Cursor that a reader acknowledged
//	RUN/README.md                            the dataset card, for people and load_dataset
//	RUN/{wal,data,failures,_commits}/.tmp-*  files being written, or leftovers
//	RUN/orphans/                             files that recovery and repair set aside
//
// No two commits have the same n. In the names of merged shards, m replaces 0, and n is the number of
// the first replaced entry. hash8 is the start of the file's SHA-256. An entry is a Commit in JSON: at
// most one shard of data and one of failures with their sizes, digests and counts, and the samples
// that they hold. The files of a commit never change.
//
// An entry is one line and ends with its own checksum, the SHA-256 of all bytes of the file
// before that comma:
//
//	{"version":1,"seq":1,"run_id":"…",…,"samples":[…],"sha256":"<64 hex digits>"}\n
//	└───────────── these bytes are hashed ──────────┘
//
// The samples are in the order of their rows. Each sample has the index of its group in groups. The
// groups are in order of first appearance:
//
//	"groups":[{"id":"g0","size":8},{"id":"g1","size":8}]
//	"samples":[{"key":"…","attempt":1,"rows":2,"failures":0,"group":0,"index":3},…]
//
// So the log alone locates the rows of each group: count from the first row of the shard, sample by
// sample. size and index are group_size and sample_index. A group is whole when the log holds each
// index below its size, as data, as a failure, or without either. A later entry can supersede
// failures. If the rows of a sample have keep=false, the sample's filtered is their keep_reason. If
// a tap saw calls of a sample that no answer shows, unshown has their counts, such as
// "unshown":{"retry":1}: see [tokenize.Unshown].
//
// Later versions will keep the checksum in this place. A reader checks the checksum before it reads
// the version, so it does not mistake a damaged entry for a newer one. All entries of a log have
// one run_id. The member epoch is optional and reserved for logs with several writing processes; a
// reader checks it.
//
// # Merges
//
// Config.CommitGroups makes many small commits. A merge is an entry that replaces several entries.
// It has their samples, in the same order, and one shard of each kind with their rows, bit for bit.
// A merge has two members that a commit lacks:
//
//	"replaces":[[1,8],[10,17]]                     entries that no longer count: both ends
//	                                               included, and all that these replaced; it
//	                                               follows seq, so the first bytes show a merge
//	"merged":[{"seq":1,"samples":4,"tokens":90},…] the commits that its samples came from: the
//	                                               first 4 are from commit 1, whose rows have
//	                                               90 tokens; also its created_at
//
// A merge does not add samples or change their order. The logical order of a dataset is the order
// of its commits by number, whichever shards hold their rows. It never changes. [Log.Commits] and
// all readers use it. A reader accepts a missing entry only if an existing entry replaces it, and
// skips an existing entry that is replaced.
//
// During Run one goroutine merges. It picks at least Config.MergeAt entries that are neighbors in
// logical order, none of them above a given size tier. The largest entry is at most half of the
// total. Tiers are a factor of eight apart, so a row is rewritten each time its shard grows
// eightfold: at most five times. A merge never exceeds Config.MaxShardBytes or 65,536 samples. It
// excludes commits of more than Config.RowGroupTokens tokens and neighbors with different
// key-values. The steps, in order:
//
//  1. check the digests of the replaced shards, write the new shards from them, and seal these as
//     in a commit
//  2. write the entry as in a commit            ◄── the merge: the replaced entries stop counting
//  3. write the card
//  4. move the replaced shards to replaced/, fsync the folders
//  5. move the replaced entries
//  6. delete them there once [Dataset.Acknowledge] is past all that they hold, or after ten
//     minutes if no reader ever acknowledged
//
// Readers see no change before step 2. After a kill, Create does the remaining steps. A reader that
// does not find a shard at its path also looks for it in replaced/. If the shard is not there
// either, the reader reads the log again (ErrReplaced). An error before or after step 2 is logged,
// and the merger retries after one minute, then two, up to an hour. It skips a damaged entry. The
// merger works at most half of the time. It holds one row group that it writes and one that it
// reads.
//
// The card lists the committed files of each configuration, so datasets.load_dataset("RUN") of
// Hugging Face returns the rows. The configuration default has the data. The configuration failures
// exists if the data are Parquet. The card is rewritten after a commit is durable, so it is never
// ahead of the log. It can be a 64th of the commits behind the log, or any number of commits with
// Config.CommitGroups. It catches up at the first commit 30 seconds after its last rewrite, at the
// end of Run and in Create. A README.md without the card's second line belongs to the user and is
// not replaced. If a card cannot be written, the error is logged and the run continues.
//
// A Parquet shard uses zstd at its fastest level and 512 KB pages of version 2. A row group ends at
// the end of the group of samples in which it reaches Config.RowGroupTokens tokens. It ends within
// a group only at twice as many tokens. So a reader of whole groups usually decodes one row group
// per group. An Arrow shard is an IPC stream, uncompressed so that it can be mapped. Its batches
// are closed by token count. The stream ends with the mark ff ff ff ff 00 00 00 00.
//
// A segment of the write-ahead log is a file in the format of package frame, of kind "wal", version
// 1, with its number in the header. A mark follows each sync. The last mark of a segment is durable
// before the next segment begins. A payload is one whole sample: the fields of tokenize.Sample in
// order, in the format of walencode.go. It omits the log-probabilities of tokens that were not
// sampled. So it takes about 6 bytes per token if half of the tokens are sampled, and at most 1.05
// times the raw bytes.
//
//	┌────────┬───────────┬───────────┬──────────┬───────────┐
//	│ header │ frame: s1 │ frame: s2 │ mark     │ frame: s3 │   s1 s2: one sync; s3: not yet
//	└────────┴───────────┴───────────┴──────────┴───────────┘
//
// A reader refuses entries, shards and segments of another version of the program (ErrNewer).
//
// # From Append to a commit
//
//	Append ──► wal/ ──┬─ sync ─► Append returns nil: the sample is durable
//	                  │
//	                  └──► queue of the writer ─► held until its ─► open ─► commit ─► done(nil)
//	                                              group is whole    shards  └─► its segment is deleted
//
// One sync of the write-ahead log covers several samples. The first sample after a pause is synced
// at once. The next sync comes at least 20 ms later and covers all samples that arrived in between.
// So a sample waits at most 20 ms plus the sync. (The first sync of a segment also syncs the folder
// and, once more, the previous segment.) A failure is never committed after a later success of the
// same key.
//
// The samples of a group finish at different times, but trainers want them together. So the writer
// holds a sample until every index of its group has an outcome, data or failure. It then writes the
// group by index, row after row, into one shard. Held samples are durable, so they need not stay in
// memory. The writer releases samples beyond half of Config.MaxBytesInFlight, or all of them if an
// Append waits for the budget, and rereads them from the write-ahead log. A group is written
// incomplete when its first sample is Config.MaxShardAge old, or when the writer has made two
// commits since. More than 16,384 held samples and Close have the same effect. Groups of one, of
// more than 16,384, and without an id are not held. Recovery holds samples in the same way.
//
// With Config.CommitGroups a group waits for its last sample without a time limit. A whole group is
// committed when nothing else waits for the writer, at most 20 ms later. So samples that share a
// sync of the write-ahead log share a commit. Such a commit takes four syncs, or six with failures,
// and a sync of the write-ahead log. For 8 samples of 1,000 tokens it takes about 5 ms of processor
// time. A group is in one commit, however large it is. Samples of groups that are not whole outlive
// the process in the write-ahead log: Close leaves them there, and recovery passes them to the
// writer of Run.
//
// A segment ends when the writer begins to close its shards. It is deleted when all of its samples
// are in commits. So there are about as many segments as open shards, and as many again for held
// samples. With Config.CommitGroups a segment ends at 4 MiB, and each held sample keeps at most one
// segment. When a write or a sync of the log fails, no sample that waited for it is reported
// durable, and the run ends. The log does not retry, because a second sync can succeed although the
// first one lost data.
//
// # Commit protocol
//
// The rows and failures of a sample go to different files, and must appear together or not at all.
// So the writer keeps one open shard of each kind and seals both together, and one entry names
// both. The steps, in order:
//
//  1. write data/.tmp-… and failures/.tmp-…, hash them while writing
//  2. fsync each file
//  3. reopen each: check size, SHA-256, schema, row count, end mark
//  4. rename to part-…                      no entry names it yet
//  5. fsync the folders
//  6. write _commits/.tmp-…, fsync
//  7. link to _commits/<seq>.json           ◄── the commit: all of it exists now
//  8. fsync _commits
//  9. delete segments whose last sample this was; call done(nil) for each sample
//
// Linking fails if the name exists, so no entry is ever overwritten. An entry is complete before it
// has its name. A sample without rows and failures is committed too: its key is in the entry.
//
// Shards are sealed when they reach Config.MaxShardBytes, when their first sample is
// Config.MaxShardAge old, and by Close. A sample's rows are never split across shards.
//
// A failed step ends the run with a *ShardError. Readers see no change before step 7. If step 7 or
// 8 fails, it is unknown whether the entry exists. The done functions of its samples receive the
// error, and the next Create reads the log to find out.
//
// # Fsyncs
//
// Besides the steps of a commit and of a merge:
//
//	fsynced                                 when                                   before
//	───────────────────────────────────────────────────────────────────────────────────────────────────
//	a segment of the write-ahead log        at most every 20 ms, for all samples   Append returns nil
//	                                        that came in between
//	wal/, for the name of the segment       at the first sync of the segment       Append returns nil
//	the last mark of a segment              when the next segment begins           it is created
//	the run's folder                        when Create has made its folders       Create continues
//	an empty file of _commits/, then        when Create checks that it can         the log is read
//	_commits/                               make a commit there
//	_commits/                               when Create recovers, as first step    anything is removed
//	ack.json, then the run's folder         by Acknowledge                         it returns
//	wal/                                    when Create has recovered              Create returns
//	orphans/ and the run's folder           when a file is set aside               the next step
//	a repaired segment, then wal/           by RepairPlan.Apply                    the next segment
//	the card, under its temporary name      after a commit, and by Create          it is renamed
//
// Each step waits for its sync. Removals are not synced. If a power cut restores a deleted segment,
// its samples are already in commits, and readers ignore temporary files. A failed sync ends the
// run and is never retried.
//
// The other files of a run's folder do not belong to the sink. Package journal documents the syncs
// of attempts. Package runfolder documents the syncs of run.json and tasks.jsonl.
//
// # Exactly once
//
// A sample key is done once a commit holds rows of the sample, or the sample without rows and
// failures. Append then refuses the key (ErrCommitted). A key with only failures has failed, and a
// later success supersedes the failures. Two failures of one key have different attempts, so
// recovery identifies a failure by key and attempt.
//
// The guarantee: if Append returned nil for a sample, the sample is in the dataset exactly once
// after the next Create on the folder, whatever ended the process. With Config.CommitGroups its
// group must also be whole. If Append was interrupted, the sample can be in the dataset or not.
//
// # Recovery
//
// Before Create returns, it brings the folder to the state of a closed dataset. Recovered reports
// what Create did. If recovery is interrupted, the next Create starts it again. The steps, in
// order:
//
//  1. fsync _commits: the log is true on disk before anything relies on it
//  2. move replaced files to replaced/, remove temporary files, move shards that no entry
//     names to orphans/
//  3. commit samples of the write-ahead log that no entry names to new shards, straight from their
//     segment, groups together
//  4. delete the segments, fsync wal
//
// With Config.CommitGroups step 3 commits only the groups that are whole. It writes the other
// samples to a new segment and renames it over the last segment, before step 4 deletes the other
// segments. So the new segment has no torn end, and the segments of Run follow it. These samples
// are durable and in no commit, as before the kill: [Log.Waiting] and [ReadLedger] return them.
//
// Before Create changes anything, it checks that no committed file is missing. It reads every entry
// and checks that every committed file exists with its size. A shard that no entry names must not
// hold a sample that is nowhere else. If it does, the last entry of the log is lost
// (ErrLostCommit). A lost last entry leaves no gap in the log, so it cannot be detected otherwise.
// Log.CheckDigests and Verify check digests; Create does not.
//
// Uncommitted shards are not adopted. All of their samples are in the write-ahead log, and writing
// them again is cheaper than proving that a shard matches its lost entry.
//
// The last segment can have a torn end: a short frame, or a frame with sectors of zeros, that no
// later whole frame records as durable. Its sample was never reported durable, so the torn end is
// dropped. All other unreadable bytes are damage. A torn or missing end of an earlier segment is
// damage too. Create refuses such a folder with a *CorruptError that holds file and offset.
// PlanRepair lists the samples that can be saved, and Apply saves them.
//
// When the context of Run is done, open shards are abandoned and the done functions receive the
// cause. A sample for which Append returned nil is not lost: the next Create commits it. Close
// commits everything and leaves no segment, except for groups that are not whole if
// Config.CommitGroups is set.
//
// Only one process at a time can have a dataset open; the caller needs a lock. Readers need none.
//
// # Memory and goroutines
//
// Append blocks while accepted samples that are not yet encoded exceed Config.MaxBytesInFlight.
// Held samples count until the writer releases them. After that the writer keeps some 100 bytes per
// sample, and rereads one sample at a time. It has one open row group, resident: 17 MB for a
// million tokens, 20 MB for a group of two million. With 90 KB of messages for each 8,000 tokens it
// is 20 MB and 25 MB. With Arrow it has one batch instead: some 9 bytes per token of
// Config.RowGroupTokens plus its text, and up to four times that while the memory grows. That is 35
// MB for a million tokens, 75 MB with these messages. The writer keeps this memory for its next
// batches, except arrays above 16 MB. The write-ahead log keeps a buffer for the largest encoded
// sample. So does the writer that rereads it, of which it keeps at most 4 MB. Run owns all
// goroutines: one for the writer, one for the write-ahead log, one for merges. Each file belongs to
// one of them.
//
// # Reading order
//
//	accepting samples       dataset.go; sample.go checks them, budget.go bounds them, keyid.go has
//	                        the keys that are done
//	the write-ahead log     wal.go, queue.go; walencode.go and waldecode.go are a sample's format,
//	                        walread.go reads segments
//	open shards, a commit   hold.go, judge.go, writer.go, shard.go, commit.go; entry.go is an
//	                        entry's format, entry_samples.go reads it fast
//	merges                  merged.go has a merge's part of an entry; merge.go, mergewrite.go,
//	                        mergeretry.go and replaced.go make them; cursor.go has the
//	                        acknowledgements of readers
//	the dataset card        card.go, card_text.go
//	the columns of a row    schema.go, stored.go
//	Parquet                 parquet.go, codec.go; scan.go, part.go and facts.go read it
//	Arrow                   arrow.go
//	recovery                recover.go, lost.go; repair.go is for damage
//	readers                 follow.go (the logical order), read.go (Log), moved.go, peek.go (one row),
//	                        waiting.go, ledger.go, groups.go, hasrows.go
//	a copy of a dataset     store.go
//	checks                  check.go, verify.go, verifyshard.go, verifywal.go
//	configuration, errors   config.go, format.go, fs.go; errors.go
package sink

// Package sink makes finished samples durable. A sample goes into a write-ahead log first. From
// there its rows go into Parquet or Arrow shards and its failures into shards of their own. A
// commit log names the shards that exist. All readers (Log, Verify, the Python package in python/)
// follow the commit log and nothing else.
//
// # Schema
//
// StoredRow is a row of data, StoredFailure a row of failures. Their fields are the columns of
// schema version 1, in order, in both formats. A row is one training sequence of T tokens,
// unshifted and unpadded:
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
// Nullable columns are versions, reward, reward_details, divergence, the sampling parameters,
// messages, metadata and the last four. Null means "unknown", never zero. In divergence alone it
// means "none": the row is not a fork and no part of it was realigned.
//
// policy_version_min and policy_version_max are the range of versions over the sampled tokens, or
// null if any of these is unknown. keep and keep_reason are the decision of a filter
// (Config.Judge), or null if there is none.
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
// Tokens with after_stop and padded_id are trained like all others. With
// tokens.after_stop: mask, the tokens after the end of a turn have mask 0. n_unscored counts
// every sampled token of the row under mask 0, including these tokens. A reader that looks up
// embeddings by id needs as many embeddings as the engine, not as many as the tokenizer.
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
// finish_reasons has the engine's word for each call of the row if it is proven. The proof is one
// of: the call's trace; an output as long as the limit that the engine was given (length); the
// server's stop reason (length); a last id at which the engine is known to stop (stop). An empty
// word means unknown, so a row whose last finish reason is empty can be truncated although
// truncated is false. An output that the engine aborted is not data: the sample is retried, and
// in the end fails with class aborted.
//
// Each shard has the key-values rollout.schema_version, rollout.run_id, rollout.kind and the keys of
// Config.Meta. The command adds others, such as rollout.versions_source: the possible sources of
// the numbers in versions, as a comma-separated list of trace, url, flag and set-version, or none
// (package policy). flag and set-version are claims of the user.
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
// The samples are in the order of their rows. Each has the index of its group in groups, which
// are in order of first appearance:
//
//	"groups":[{"id":"g0","size":8},{"id":"g1","size":8}]
//	"samples":[{"key":"…","attempt":1,"rows":2,"failures":0,"group":0,"index":3},…]
//
// So the log alone locates the rows of each group: count from the first row of the shard, sample
// by sample. size and index are group_size and sample_index. A group is whole when an entry holds
// each index below its size, as data, as a failure, or without either. A later entry can supersede
// failures. A sample whose rows have keep=false has their keep_reason as filtered. If a tap saw
// calls of a sample that no answer shows, their counts are in "unshown":{"retry":1}: see
// [tokenize.Unshown].
//
// Later versions keep the checksum in this place. A reader checks it before it reads the version,
// so it does not mistake a damaged version for a newer one. All entries of a log have one run_id.
// The member epoch is optional and reserved for logs with several writing processes; a reader
// checks it.
//
// # Merges
//
// Commits that are made as soon as a group is whole (Config.CommitGroups) are small and many. A
// merge is an entry that replaces several entries. It has their samples, in their order, and one
// shard of each kind with their rows, bit for bit. It has two more members than a commit:
//
//	"replaces":[[1,8],[10,17]]                     entries that no longer count: both ends
//	                                               included, and what these replaced; it
//	                                               follows seq, so the first bytes show a merge
//	"merged":[{"seq":1,"samples":4,"tokens":90},…] the commits that its samples came from: the
//	                                               first 4 are from commit 1, whose rows have
//	                                               90 tokens; also its created_at
//
// A merge adds no sample to the dataset and moves none. The logical order of a dataset is the order
// of its commits by number, wherever their rows are, and never changes. [Log.Commits] and all
// readers use it. A reader accepts a missing entry only if an existing entry replaces it, and skips
// an existing entry that is replaced.
//
// During Run one goroutine merges. It takes at least Config.MergeAt entries that are neighbors in
// logical order and not above one size tier. The largest is at most half of the total. Tiers are a
// factor of eight apart, so a row is rewritten once for each eightfold growth of its shard: at
// most five times. A merge never exceeds Config.MaxShardBytes or 65,536 samples. It excludes
// commits of more than Config.RowGroupTokens tokens and neighbors with other key-values. The steps,
// in order:
//
//  1. write the shards from the replaced shards, whose digests are checked, and seal them as in a
//     commit
//  2. write the entry as in a commit            ◄── the merge: the replaced entries stop counting
//  3. write the card
//  4. move the replaced shards to replaced/, fsync the folders
//  5. move the replaced entries
//  6. delete them there once [Dataset.Acknowledge] is past all that they hold, or after ten
//     minutes if no reader ever acknowledged
//
// Before step 2 nothing changes for any reader. After a kill, Create does the remaining steps. A
// reader that has the path of a shard also looks for it in replaced/. If the shard is not there
// either, the reader reads the log again (ErrReplaced). An error before or after step 2 is logged,
// and the merger retries after one minute, then two, up to an hour. It skips a damaged entry. The
// merger works half of the time, and holds one row group of its own and one of a source.
//
// The card names the committed files of each configuration (default: the data; failures, if the
// data are Parquet), so datasets.load_dataset("RUN") of Hugging Face returns the rows. A card is
// written as a whole after a commit is durable, and is never ahead of the log. It can lag by a 64th
// of the commits, or by any number with Config.CommitGroups. It catches up at the next commit that
// comes 30 seconds later, at the end of Run and in Create. A README.md without the card's second
// line belongs to the user and stays. If a card cannot be written, the error is logged and the run
// continues.
//
// A Parquet shard is written with zstd at its fastest level and 512 KB pages of version 2. A row
// group ends with a group, at the first end after Config.RowGroupTokens tokens. It ends within a
// group only at twice as many tokens. So a reader of whole groups decodes one row group for each.
// An Arrow shard is an IPC stream, uncompressed so that it can be mapped, in batches closed by
// tokens. It ends with the mark ff ff ff ff 00 00 00 00.
//
// A segment of the write-ahead log is a file of package frame, of kind "wal", version 1, with
// its number in the header. After each sync a mark records it. The mark of a segment is durable
// before the next segment begins. A payload is one whole sample: the fields of tokenize.Sample in
// order, in the format of walencode.go. It has no log-probabilities of tokens that were not sampled.
// So it takes some 6 bytes per token if half are sampled, and at most 1.05 times the raw bytes.
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
// The write-ahead log is synced in groups. The first sample after a pause is synced at once. The
// next sync comes at least 20 ms later and covers all samples that arrived in between. So a sample
// waits at most 20 ms plus the sync. (A segment's first sync also syncs its folder, and the segment
// before once more.) A failure is never committed after the success of its key that follows it.
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
// With Config.CommitGroups a group waits for its last sample without a limit. It is committed when
// nothing else waits for the writer, at most 20 ms later: samples that share a sync of the
// write-ahead log share a commit. Such a commit takes four syncs, or six with failures; a lone
// sample also takes one of the write-ahead log. For 8 samples of 1,000 tokens it takes some 5 ms of
// processor time. A group is in one commit, however large it is. Samples of groups that are not
// whole outlive the process in the write-ahead log: Close leaves them there, and recovery hands
// them to the writer of Run.
//
// A segment ends when the writer begins to close its shards. It is deleted when all of its samples
// are in commits. So there are about as many segments as open shards, and as many again for held
// samples. With Config.CommitGroups a segment ends at 4 MiB, and each held sample keeps at most one
// segment. When a write or a sync of the log fails, no sample that waited for it is reported
// durable, and the run ends. Nothing is retried: a second sync can succeed although the first one
// lost data.
//
// # Commit protocol
//
// The rows and failures of a sample go to different files, and must appear together or not at all.
// So a commit can have two shards: the writer keeps one open shard of each kind, seals them together,
// and one entry names both. In order:
//
//  1. write data/.tmp-… and failures/.tmp-…, hash them on the way
//  2. fsync each file
//  3. reopen each: check size, SHA-256, schema, row count, end mark
//  4. rename to part-…                      no entry names it yet
//  5. fsync the folders
//  6. write _commits/.tmp-…, fsync
//  7. link to _commits/<seq>.json           ◄── the commit: all of it exists now
//  8. fsync _commits
//  9. delete segments whose last sample this was; call done(nil) for each sample
//
// Linking fails if the name exists. So no entry is ever overwritten, and each is complete before it
// has a name. A sample without rows and failures is committed too: its key is in the entry.
//
// Shards are sealed when they have grown to Config.MaxShardBytes, when their first sample is
// Config.MaxShardAge old, and by Close. A sample's rows are never split.
//
// A failed step ends the run with a *ShardError. Before step 7 nothing changes for any reader. When
// step 7 or 8 fails, the entry can exist or not. The done functions of its samples get the error,
// and the next Create finds the answer in the log.
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
//	the last mark of a segment              when the next segment is begun         that is written
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
// Each step waits for its sync. Removals are not synced: a segment that a power cut brings back
// holds samples that are in commits, and readers ignore the names of temporary files. A failed sync
// ends the run and is never retried.
//
// The other files of a run's folder do not belong to the sink. Package journal documents the syncs
// of attempts, package runfolder of the command the syncs of run.json and tasks.jsonl.
//
// # Exactly once
//
// A sample key is done once a commit holds rows of it, or holds it without rows and failures. Append
// then refuses it (ErrCommitted). A key with failures only has failed, and a later success
// supersedes it. Two failures of one key have different attempts, so recovery identifies a failure
// by key and attempt.
//
// The promise: if Append returned nil for a sample, the sample is in the dataset exactly once as soon
// as Create has run on the folder again, whatever ended the process. With Config.CommitGroups its
// group must also be whole. If Append was interrupted, the sample can be in the dataset or not.
//
// # Recovery
//
// Before Create returns, it brings the folder to the state of a closed dataset. Recovered reports
// what it did. It can be interrupted at any moment and then starts again:
//
//  1. fsync _commits: the log is true on disk before anything relies on it
//  2. move what a merge replaced to replaced/, remove temporary files, move shards that no entry
//     names to orphans/
//  3. commit samples of the write-ahead log that no entry names to new shards, straight from their
//     segment, groups together
//  4. delete the segments, fsync wal
//
// With Config.CommitGroups step 3 commits the groups that are whole. It writes the other samples to a
// new segment and renames it to the name of the last one, before step 4 deletes the rest. So its end
// is not torn, and the segments of Run follow it. These samples are durable and in no commit, as
// before the kill: [Log.Waiting] and [ReadLedger] return them.
//
// Before Create changes anything, it checks that the folder is unchanged. It reads every entry and
// finds every committed file with its size. A shard that no entry names must not hold a sample that
// is nowhere else. If it does, the last entry of the log is lost, which leaves no gap
// (ErrLostCommit). Log.CheckDigests and Verify check digests; Create does not.
//
// Uncommitted shards are not adopted. All of their samples are in the write-ahead log, and writing
// them again is cheaper than proving that a shard matches its lost entry.
//
// The torn end of the last segment is a short frame, or a frame with sectors of zeros, that no
// whole frame reports durable. It was never reported durable and is dropped. Everything else that
// cannot be read is damage, and so is a torn or missing end of an earlier segment. Create refuses
// such a folder with a *CorruptError that holds file and offset. PlanRepair lists what can be
// saved, and Apply saves it.
//
// When the context of Run ends, open shards are abandoned and done gets the cause. A sample for
// which Append returned nil is not lost: the next Create commits it. Close commits everything and
// leaves no segment, except for groups that are not whole if Config.CommitGroups is set.
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
//	merges                  merged.go is their part of an entry; merge.go, mergewrite.go,
//	                        mergeretry.go and replaced.go make them; cursor.go is what readers
//	                        acknowledge
//	the dataset card        card.go, card_text.go
//	the columns of a row    schema.go, stored.go
//	Parquet                 parquet.go, codec.go; scan.go, part.go and facts.go read it
//	Arrow                   arrow.go
//	recovery                recover.go, lost.go; repair.go is for damage
//	readers                 follow.go (the logical order), read.go (Log), moved.go, peek.go (one row),
//	                        waiting.go, ledger.go, groups.go, hasrows.go
//	a copy of a dataset     store.go
//	checks                  check.go, verify.go, verifyshard.go, verifywal.go
//	what the caller sets    config.go, format.go, fs.go; what it gets: errors.go
package sink

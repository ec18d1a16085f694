// Package sink makes finished samples durable: they go into a write-ahead log, from
// there rows into Parquet or Arrow shards, what failed into shards of its own, and a
// commit log says which of them exist. All readers (Log, Verify, the package in python/)
// follow the commit log and nothing else.
//
// # Schema
//
// StoredRow is a row of data, StoredFailure one of failures; their fields are the
// columns of schema version 2, in order, in both formats. A row is one training
// sequence of T tokens, unshifted and unpadded:
//
//	             prompt                assistant           tool      assistant
//	input_ids    p p p p p p p p p p   a a a a a a a a a   t t t t   a a a a a
//	loss_mask    0 0 0 0 0 0 0 0 0 0   1 1 1 1 1 1 1 1 1   0 0 0 0   1 1 1 1 1
//	logprobs     0 0 0 0 0 0 0 0 0 0   l l l l l l l l l   0 0 0 0   l l l l l
//	turn_offsets 0                     10                  19        23        28
//	turn_roles   0                     1                   2         1
//
// The rows of one sample share sample_key and rollout_id, are numbered by
// segment_index of segment_count, and lie one after the other in one shard. Lists
// are Parquet's three-level LIST with required elements called element, and Arrow's
// list with a non-null field element; both formats have the same schema in pyarrow,
// nullability and metadata included. Nullable are versions, reward, reward_details,
// divergence, the sampling parameters, messages, metadata and the columns of version 2, and
// null always means "unknown", never zero. In divergence alone it means "none": the row is
// not a fork and nothing in it was realigned.
//
// Version 2 added four columns at the end: policy_version_min and policy_version_max span
// versions over the sampled tokens, and are null where one of those is unknown; keep and
// keep_reason are what a filter decided (Config.Judge), and null where none did. A shard of version 1 ends before
// them and is read as if they were null. Shards of failures are the same in both versions.
// A later version only adds columns, at the end and nullable.
//
// # Flags
//
// The column flags has words of a closed list:
//
//	cut, length           how the row ends, see below
//	client_tool_context   a tool result of the client that the model saw as empty text
//	surplus_logprobs      the engine gave more log-probabilities than ids; the rest was dropped
//	realigned             the end of an output was replaced by what the next prompt has
//	reattached            the answer of a server run was lost; tokens come from its record
//	spliced               the tap gave the engine tokens that it had sampled itself
//	after_stop            an output has tokens after its first end-of-turn id
//	padded_id             an id that the tokenizer does not name, below the engine's vocab_size
//
// Tokens with after_stop and padded_id are trained like all others. With
// tokens.after_stop: mask, the tokens after the end of a turn have mask 0. n_unscored counts
// every sampled token of the row under mask 0, these tokens included. A reader that looks up
// embeddings by id needs as many embeddings as the engine, not as many as the tokenizer.
//
// # How a row ends
//
// Three things can end a row or a sample before the policy does, and each has one
// place of its own:
//
//	we cut the row                  flags: cut        truncated   at tokens.max_row_tokens, always at the
//	                                                              end of an output; the rest is in no row
//	the engine's limit of tokens    flags: length     truncated   max_new_tokens, or the end of the context,
//	ended the row's last output                                   ended it; finish_reasons ends with length
//	the steps of the sample         status: max_steps             every output of its rows is whole
//	were used up
//
// truncated is cut or length: the policy did not choose the end of the row. It is about the
// row's last output alone: an output in the middle that the limit ended has length in
// finish_reasons, and the row goes on after it. status is truncated where length ended the
// whole sample, which then is in its last row as well. A context that the next prompt does
// not fit into is a failure of class context_overflow.
//
// finish_reasons has the engine's word for each call of the row where that is proven: by
// the call's trace, by as many tokens as the engine was asked for at most (length), by
// the server's stop reason (length), or by a last id at which the engine is known to
// stop (stop). Empty is unknown, and so a row whose last finish reason is empty may be
// truncated although truncated is false. What the engine gave up in the middle (abort)
// is not data: the sample is tried again, and fails with class aborted in the end.
//
// Each shard carries the key-values rollout.schema_version, rollout.run_id,
// rollout.kind and those of Config.Meta. The command adds, among others,
// rollout.versions_source: who may have told the numbers in versions, of trace, url,
// flag and set-version, with commas between them, or none (package policy). The last two are
// what the user claims.
//
// # Files
//
//	RUN/wal/00000001.wal                     samples that no commit holds yet
//	RUN/data/part-<run>-<writer>-<n>-<hash8>.parquet   or .arrow: rows
//	RUN/failures/part-<run>-<writer>-<n>-<hash8>.parquet   failures, Parquet always
//	RUN/_commits/00000000000000000001.json   the log, one entry per commit and per merge
//	RUN/replaced/{data,failures,_commits}/   what merges replaced, until no reader needs it
//	RUN/ack.json                             the last Cursor that a reader acknowledged
//	RUN/README.md                            the dataset card, for people and load_dataset
//	RUN/{wal,data,failures,_commits}/.tmp-*  being written, or left behind
//	RUN/orphans/                             what recovery and repair set aside
//
// No two commits of one writer have the same n; hash8 begins the file's SHA-256. An
// entry is a Commit in JSON of CommitVersion: at most one shard of data and one of
// failures with their sizes, digests and counts, and the samples that they hold. The
// files of a commit never change.
//
// An entry is one line and ends with its own checksum, the SHA-256 of all bytes of the
// file before that comma:
//
//	{"version":3,"seq":1,"run_id":"…",…,"samples":[…],"sha256":"<64 hex digits>"}\n
//	└───────────── these bytes are hashed ──────────┘
//
// The samples are in the order of their rows, and each says the place of its group among
// the groups of the entry, which are in the order in which they begin:
//
//	"groups":[{"id":"g0","size":8},{"id":"g1","size":8}]
//	"samples":[{"key":"…","attempt":1,"rows":2,"failures":0,"group":0,"index":3},…]
//
// So a reader knows from the log alone where the rows of each group lie: they are counted
// from the first row of the shard, sample after sample. size and index are group_size and
// sample_index. A group is whole when each index below its size is in an entry, as data, as
// a failure, or without either. Failures may be superseded by a later entry. A sample whose
// rows have keep=false bears their keep_reason as filtered. One of which a tap saw calls that
// no answer shows has their counts, as "unshown":{"retry":1}: see [tokenize.Unshown].
//
// Every later version keeps the checksum in this place: a reader checks it before it
// looks at the version, so a damaged version is not taken for a newer one. Entries of
// version 2 have no groups. Those of version 1 have no checksum either; they are read if
// they have the members of version 1 only.
// All entries of a log have one run_id. The member epoch, for logs with several writing
// processes, is reserved: it may be there and is checked.
//
// # Merges
//
// Commits that are made as soon as a group is whole (Config.CommitGroups) are small and many. A
// merge is an entry of version 4 that takes the place of several: it has their samples, in their
// order, and one shard of each kind with their rows, bit for bit. Beside the members of a commit
// it has two:
//
//	"replaces":[[1,8],[10,17]]                     entries that no longer count: both ends
//	                                               included, those that these replaced as well
//	"merged":[{"seq":1,"samples":4,"tokens":90},…] the commits that its samples came from: the
//	                                               first 4 are those of commit 1, whose rows
//	                                               had 90 tokens; and its created_at
//
// A merge makes no sample exist and moves none. The logical order of a dataset is that of its
// commits by number, wherever their rows are, and never changes: [Log.Commits], [Log.Originals]
// and all readers go by it. A reader takes an entry as missing only where an entry that is there
// replaces it, and passes over an entry that is there and replaced.
//
// While Run goes on, one goroutine merges: at least Config.MergeAt entries that follow each other
// in logical order, none larger than a tier, of which the largest is not half of the whole. The
// tiers are a factor of eight apart, so a row is written again once for each eightfold growth of
// its shard: at most five times. What would exceed Config.MaxShardBytes or 65,536 samples is left
// alone, and so are commits of more than Config.RowGroupTokens tokens, entries without groups,
// and neighbours with other key-values. In order:
//
//  1. the shards are written from the replaced ones, whose digests are checked, and sealed as
//     those of a commit
//  2. the entry is made as that of a commit     ◄── the merge: the others count no more
//  3. the card is written
//  4. the replaced shards move to replaced/, fsync of the folders
//  5. the replaced entries do
//  6. they are deleted there once [Dataset.Acknowledge] is past all that they hold, or ten minutes
//     later where no reader ever acknowledged anything
//
// Up to step 2 nothing has happened for any reader; Create does the rest after a kill. A reader
// that has the path of a shard looks for it in replaced/ as well; where it is gone it reads the
// log again (ErrReplaced). An error before or after step 2 is logged, and merging is
// tried again a minute later, then two, at most an hour; an entry that is damaged is left out. A
// merge works for half of the time, and holds one row group of its own and one of a source.
//
// The card names the committed files of each configuration (default: the data; failures, where
// the data are Parquet), so datasets.load_dataset("RUN") of Hugging Face gives the rows. It is
// written after a commit is durable, as a whole, and is never ahead of the log. It may lag: by
// a 64th of the commits at most (with Config.CommitGroups by any number), until the next one that
// comes 30 seconds later, and until Run ends or Create is called. A README.md without the card's second line is the user's and stays.
// A card that cannot be written is logged, and ends no run.
//
// A Parquet shard is written with zstd at its fastest level, pages of 512 KB,
// version 2. A row group ends where a group ends, at the first end behind
// Config.RowGroupTokens tokens, and in the middle of a group at twice as many only: a reader
// of whole groups decodes one row group for each. An Arrow shard is an IPC
// stream, uncompressed so that it can be mapped, in batches closed by tokens; it
// ends with the mark ff ff ff ff 00 00 00 00. Its name ends with .arrow, that of older ones with
// .arrows: a reader goes by the format that the entry says.
//
// A segment of the write-ahead log is a file of package frame, of kind "wal" and
// WALVersion, that bears its number. After each sync a mark says so; the mark of a
// segment is durable before the next segment is begun. A payload is one whole sample: the
// fields of tokenize.Sample, one after the other, as walencode.go says. Tokens that were
// not sampled have no log-probability, so a sample is smaller than its arrays: some 6 bytes
// per token where half are sampled, and below 1.05 times its raw bytes whatever is sampled.
//
//	┌────────┬───────────┬───────────┬──────────┬───────────┐
//	│ header │ frame: s1 │ frame: s2 │ mark     │ frame: s3 │   s1 s2: one sync; s3: not yet
//	└────────┴───────────┴───────────┴──────────┴───────────┘
//
// A reader refuses what a newer version of the program wrote (ErrNewer): entries,
// shards and segments.
//
// # A sample's way
//
//	Append ──► wal/ ──┬─ sync ─► Append returns nil: the sample is durable
//	                  │
//	                  └──► queue of a writer ─► held until its ─► open ─► commit ─► done(nil)
//	                       chosen by the group  group is whole    shards  └─► its segment goes
//
// The write-ahead log is synced in groups: the sync of a sample that comes after a
// pause begins at once, and the next one 20 ms later at the earliest, for all that
// came in between. So there is at most one sync in 20 ms, and a sample waits for
// no longer than that and the sync itself. (A segment's first sync syncs its folder
// as well, and the segment before once more.) All samples of one group go to one writer,
// and so do those of one key: a failure is never committed after the success that follows
// it.
//
// Samples of a group finish apart, and trainers want them together. So a writer holds a
// sample until every index of its group has an outcome, data or failure, and then writes
// the group by index, one row after the other, into one shard. What is held is durable, so
// it need not be in memory: samples beyond half of Config.MaxBytesInFlight, or all of them
// where an Append waits for the budget, are put down, and read again from the write-ahead
// log. A group is written as far as it is there when its first sample is Config.MaxShardAge
// old, when its writer has made two commits since, when more than 16,384 samples are held,
// and by Close. Groups of one, of more than that, and without an id are not held; recovery
// holds as well.
//
// With Config.CommitGroups a group waits for its last sample however long that takes, and is
// committed when nothing else waits for its writer, 20 ms later at most: what shares a sync of
// the write-ahead log shares a commit. Such a commit takes four syncs, and with failures six;
// a sample that comes alone takes one of the write-ahead log. Of 8 samples of 1,000 tokens it
// takes some 5 ms of processor time. A group is in one commit, however large it is. What there
// is of a group that is not whole outlives the process in the write-ahead log: Close leaves it
// there, and recovery gives it to the writers of Run.
//
// Of 243 groups of 8 scripted samples in shards of 3 MiB, with 24 and with 128 in flight,
// none lay in one piece and 12 and 21 lay in two shards when samples were written as they
// came. The groups of the entries, 107 bytes per sample instead of 80, do not change that: a
// reader then reads every group from all over a shard. Held, all 243 lie in one piece, at
// the same time, processor time, memory (70 to 75 MB) and mean time to the commit. So both
// are done: the entry says where groups are, and they are in one place.
//
// A segment ends when a writer begins to close its shards, and is deleted when all of
// its samples are in commits, so there are about as many segments as open shards, and for
// what is held as many again. With Config.CommitGroups a segment ends at 4 MiB, and each held
// sample keeps one at most. When a write or a sync of the log fails, none of the samples that
// waited for it are reported durable, nothing is tried again — a second sync may call good
// what the first one lost — and the run ends.
//
// # Commit protocol
//
// A sample can have rows and failures, which go to different files, and must appear
// as a whole or not at all. So a commit is not one shard: a writer keeps one open
// shard of each kind, seals them together, and one entry names both. In order:
//
//  1. data/.tmp-… and failures/.tmp-… are written, and hashed on the way
//  2. fsync of each file
//  3. each is opened again: size, SHA-256, schema, row count, end mark
//  4. rename to part-…                     still nobody's: no entry names it
//  5. fsync of the folders
//  6. _commits/.tmp-… is written, fsync
//  7. link to _commits/<seq>.json          ◄── the commit: all of it exists now
//  8. fsync of _commits
//  9. segments whose last sample this was are deleted; done(nil) for each sample
//
// Linking fails where the name exists: no entry is ever replaced, and each was
// complete before it had a name. A sample without rows and failures is committed
// too: its key is in the entry.
//
// Shards are sealed when they have grown to Config.MaxShardBytes, when their first
// sample is Config.MaxShardAge old, and by Close. A sample's rows are never split.
//
// Any failed step ends the run with a *ShardError: storage is not negotiable. Until
// step 7 nothing has happened for any reader. When step 7 or 8 fails, the entry may
// be there or not. The done functions of its samples get the error, and the next Create
// finds in the log which it is.
//
// # What is fsynced, and when
//
//	fsynced                                 when                                   before
//	───────────────────────────────────────────────────────────────────────────────────────────────────
//	a segment of the write-ahead log        at most every 20 ms, for all samples   Append returns nil
//	                                        that came in between
//	wal/, for the name of the segment       at the first sync of the segment       Append returns nil
//	the last mark of a segment              when the next segment is begun         that is written
//	a shard, under its temporary name       when it is sealed                      it is read back and renamed
//	data/ and failures/, for its name       after the rename                       the entry is written
//	an entry, under its temporary name      when it is written                     it is linked
//	_commits/, for its name                 after the link                         its segments are deleted,
//	                                                                               done(nil) is called
//	the run's folder                        when Create has made its folders       Create goes on
//	an empty file of _commits/, then        when Create tries whether it can       the log is read
//	_commits/                               make a commit there
//	_commits/                               when Create recovers, first of all     anything is removed
//	replaced/data/, data/ and those of      when a merge moves shards              it moves their entries
//	failures
//	ack.json, then the run's folder         by Acknowledge                         it returns
//	wal/                                    when Create has recovered              Create returns
//	orphans/ and the run's folder           when a file is set aside               the next step
//	a repaired segment, then wal/           by RepairPlan.Apply                    the next segment
//	the card, under its temporary name      after a commit, and by Create          it is renamed
//
// Each is waited for. What is removed is not synced: a segment that a power cut brings back
// holds samples that are in commits, and a temporary file has a name that no reader looks
// at. A failed sync ends the run and is never tried again.
//
// The other files of a run's folder are not the sink's. Package journal says when it syncs
// the attempts; package runfolder of the command, when run.json and tasks.jsonl are synced.
//
// # Exactly once
//
// A sample key is done once a commit holds rows of it, or holds it without rows and
// failures; Append refuses it from then on (ErrCommitted). A key with failures only
// has failed, and a later success supersedes it. Two failures of one key have
// different attempts: key and attempt are how recovery knows a failure again.
//
// What is promised: if Append returned nil for a sample, the sample is in the dataset once,
// whatever ended the process, as soon as Create has run on the folder again and, with
// Config.CommitGroups, its group is whole. If Append was cut short, the sample may be there or
// not.
//
// # Recovery
//
// Create brings the folder to the state of a dataset that was closed, before it
// returns; Recovered says what it did. It can be cut short at any moment and begins
// again then:
//
//  1. fsync of _commits: what the log says is true on disk before anything relies
//     on it
//  2. what a merge replaced moves to replaced/; temporary files are removed; shards that no
//     entry names move to orphans/
//  3. samples of the write-ahead log that no entry names are committed to new
//     shards, straight from their segment, groups together
//  4. the segments are deleted, fsync of wal
//
// With Config.CommitGroups step 3 commits the groups that are whole. The samples of the others
// are written to a new segment, which takes the name of the last one by a rename before step 4
// deletes the rest: so its end is not torn, and the segments of Run follow it. They are durable
// and in no commit, as before the kill: [Log.Waiting] yields them, and [ReadLedger] has them.
//
// Before it, and before anything is changed, Create makes sure that the folder is the one
// that was left: every entry is read, every committed file is there with its size, and a
// shard that no entry names holds no sample that is nowhere else — if it does, the last
// entry of the log is gone, which leaves no gap (ErrLostCommit). Digests are for
// Log.CheckDigests and Verify.
//
// Uncommitted shards are not adopted: all of their samples are in the write-ahead
// log, and writing them again takes less than proving that a shard is what its
// entry would have said.
//
// The torn end of the last segment — a frame that is short, or of which sectors are zeros,
// and no whole frame says that it was durable — was never reported durable and is
// dropped. Everything else that cannot be read is damage, and so is any end of an earlier
// segment but the one that was written: Create refuses the folder with a *CorruptError
// that holds file and offset. PlanRepair says what can be saved, and Apply saves it.
//
// When the context of Run ends, open shards are abandoned and done gets the cause,
// but nothing that Append returned nil for is lost: the next Create commits it.
// Close commits everything and leaves no segment, but for groups that are not whole where
// Config.CommitGroups is set.
//
// One process at a time may have a dataset open; that is the caller's to see to, as
// with a lock. Readers may come and go.
//
// # Memory and goroutines
//
// Append blocks while more than Config.MaxBytesInFlight of accepted samples are not
// yet encoded. Held samples are among them until they are put down; then a writer has a
// note of some 100 bytes of each, and one of them at a time when they are read again. It
// has one open row group: resident, 17 MB for a million tokens and 20 MB for two, where a
// group is as large as that; with 90 KB of messages for each 8,000 tokens, 20 MB and 25. Or
// it has one Arrow batch, some 9 bytes per token of Config.RowGroupTokens and its text, and
// up to four times that while its memory grows to it: 35 MB for a million tokens, with these
// messages 75. The write-ahead log has the largest sample encoded, and so has a
// writer that reads it again, up to 4 MB of it for good. Run owns all goroutines, one
// per writer, one for the write-ahead log and one for merges; each file belongs to one of them.
//
// # Reading order
//
//	what comes in           dataset.go; sample.go checks it, budget.go bounds it, keyid.go knows
//	                        what is done
//	the write-ahead log     wal.go, queue.go; walencode.go and waldecode.go are a sample's format,
//	                        walread.go reads segments
//	open shards, a commit   hold.go, judge.go, writer.go, shard.go, commit.go; entry.go is an
//	                        entry's format, entry_samples.go reads it fast
//	merges                  merged.go is what an entry says of them; merge.go, mergewrite.go, replaced.go
//	                        make them; cursor.go is what readers acknowledge
//	the dataset card        card.go, card_text.go
//	what a row holds        schema.go, stored.go
//	Parquet                 parquet.go, codec.go; scan.go, part.go and facts.go read it
//	Arrow                   arrow.go; columns.go and column_*.go are its memory
//	recovery                recover.go, lost.go; repair.go is for damage
//	readers                 follow.go (the logical order), read.go (Log), peek.go, arrow_row.go (one row), waiting.go, ledger.go, groups.go, hasrows.go
//	a copy of a dataset     store.go
//	checks                  check.go, verify.go, verifyshard.go, verifywal.go, json.go
//	what the caller sets    config.go, format.go, fs.go; what it gets: errors.go
package sink

// Package sink makes finished samples durable: rows go into Parquet or Arrow
// shards, what failed into shards of its own, and a commit log says which of them
// exist. Whoever reads — Log, Verify, python/rollout_data.py — follows the log and
// nothing else.
//
// # Schema
//
// StoredRow is a row of data, StoredFailure one of failures; their fields are the
// columns of schema version 1, in order, in both formats. A row is one training
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
// divergence, the sampling parameters, messages and metadata, and null always means
// "unknown", never zero. In divergence alone it means "none": the row is no fork and
// nothing in it was realigned.
//
// Each shard carries the key-values rollout.schema_version, rollout.run_id,
// rollout.kind and those of Config.Meta.
//
// # Files
//
//	RUN/data/part-<run>-<writer>-<n>-<hash8>.parquet   or .arrows: rows
//	RUN/failures/part-<run>-<writer>-<n>-<hash8>.parquet   failures, Parquet always
//	RUN/_commits/00000000000000000001.json   the log, one entry per commit, no gap
//	RUN/{data,failures,_commits}/.tmp-*      being written, or left behind
//
// hash8 begins the file's SHA-256. An entry is a Commit in JSON: at most one shard
// of data and one of failures with their sizes, digests and counts, and the samples
// that they hold. The files of a commit never change.
//
// A Parquet shard is written with zstd at its fastest level, pages of 256 KB,
// version 2, and row groups that are closed by tokens. An Arrow shard is an IPC
// stream, uncompressed so that it can be mapped, in batches closed by tokens; it
// ends with the mark ff ff ff ff 00 00 00 00.
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
//  8. fsync of _commits, then done(nil) for each sample
//
// Linking fails where the name exists, so of two processes that write to one log
// each gets an entry of its own, and the entry was complete before it had a name.
// A sample without rows and failures is committed too: its key is in the entry.
//
// Shards are sealed when they have grown to Config.MaxShardBytes, when their first
// sample is Config.MaxShardAge old, and by Close. A sample's rows are never split.
//
// Any failed step ends the run with a *ShardError: storage is not negotiable. Until
// step 7 nothing has happened for any reader. When step 7 or 8 fails, the entry may
// be there or not; its samples' done gets the error, and whoever continues the
// dataset learns the truth from the log.
//
// # Exactly once
//
// A sample key is done once a commit holds rows of it, or holds it without rows and
// failures; Append refuses it from then on (ErrCommitted). A key with failures only
// has failed, and a later success supersedes it.
//
// # Recovery
//
// After a crash at any moment, creating the dataset again continues it: the log is
// whole, and what no entry names is ignored by every reader and listed by Verify as
// orphans. What is not here yet: samples in open shards are lost with the process
// (there is no write-ahead log, so the caller must collect again whatever done was
// not called for), and orphans are not moved aside or adopted.
//
// # Memory and goroutines
//
// Append blocks while more than Config.MaxBytesInFlight of accepted samples are not
// yet encoded. A writer holds one open row group, some 12 MB, or one Arrow batch,
// some 9 bytes per token of Config.RowGroupTokens. Run owns all goroutines, one per
// writer; each file belongs to one of them.
package sink

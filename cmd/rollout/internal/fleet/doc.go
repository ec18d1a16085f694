// Package fleet lets several processes collect one run. The run's tasks are split into partitions, and
// its files are in a store that all processes reach: a bucket, or a folder on a shared file system.
//
//   - fleet: a run that several processes collect
//   - partition: a part of the tasks, and a dataset of its own for their samples
//   - worker: a process that collects; anything can start workers, at any time
//   - claim: an entry in a partition's log, after which only its worker can commit (package sink)
//   - epoch: the number of a claim, from 1 in each partition
//   - heartbeat: an object that a worker replaces every 10 s, with a counter
//   - spool: the local folder of a worker
//
// # Objects
//
//	fleet.json                      what the fleet collects; its last part, so that a killed plan leaves none
//	tasks/ID/0000.jsonl.zst         the tasks of partition 0; ID is the id of the fleet
//	partitions/0000/                a dataset, as package sink describes it
//	workers/NAME.json               the heartbeat of a worker; NAME is the run id of its spool and a random text
//
//	SPOOL/                          the folder of a run without tasks and rows; its run.json names the fleet
//	SPOOL/partitions/0000/          the write-ahead log of a claimed dataset, and its open shards
//
// [Plan] writes the first two. A task belongs to the partition that [PartitionOf] returns, so a group is
// never split. A partition without tasks has no dataset, and counts as sealed.
//
// # Workers
//
// A [Worker] is the task source and the sink of one collector. It claims a partition whenever the
// collector has fewer open samples than free places, so it works on several partitions at once. When the
// sink has all samples of a partition, the worker commits and seals the partition's log.
//
// A worker first claims partitions that no worker has claimed, beginning at a random one. Then it takes
// over partitions whose worker has left them or is dead. While other workers have partitions, it waits.
// When all partitions are sealed, its tasks end.
//
// If the log or the tasks of a partition are damaged, a worker skips the partition, collects the others, and
// reports the damage ([Config.Damaged]). It keeps the samples of the partition in its spool.
//
// # Safety
//
// Only the log of a partition decides who can commit: a claim is put if absent, and every later entry of
// a lower epoch is refused ([sink.ErrFenced]). A worker that loses a partition drops its samples with
// [collector.ErrMoved], and the new worker runs them. So each sample is in the store once, whatever
// the clocks, the heartbeats and the lists of objects say. They only decide when a worker tries to claim.
//
// # Liveness
//
// A worker that watches another worker uses only its own monotonic clock:
//
//	10 s    pause between two heartbeats, and between two looks at the heartbeats of other workers
//	30 s    age at which a worker without a newer heartbeat starts no attempts and claims nothing
//	60 s    a worker whose counter has not changed for this long is dead
//
// The age of a heartbeat counts from the start of its request, so a worker stops before others can
// consider it dead. After a pause of more than 30 s, a worker first reads the logs of its partitions. A
// watcher starts again after a pause of its own. If the store is away, no time counts against anyone.
//
// A heartbeat lists the claims of its worker, and whether the worker has sealed or left the partition. Other
// workers then need no request to find out that a partition is claimed or sealed, and take over what a worker
// has left within 10 s. The claim fails if the log has a later claim.
//
// # Restarts
//
// The spool belongs to one process at a time, so the processes that used it before are dead. The next
// process with this spool claims their partitions first, and commits the samples in the write-ahead logs.
// If another worker has claimed a partition in the meantime, its samples in the spool are dropped, because
// that worker runs them again.
//
// # Requests
//
// At its start, a worker makes about 1,300 requests to check the store ([store.Probe]), and reads the fleet and
// the heartbeats of the others. A partition then costs 9 requests if its worker claims, commits and seals it
// with one shard:
//
//	3   list the partition, put the claim, get the tasks
//	4   put the shard, head the shard, put the entry, for each commit; and a checkpoint after every second entry
//	2   put the end of the log, put a checkpoint
//
// A claim costs 3 requests if another worker was faster, and at most 10 if the log has 1,000 commits. A worker
// makes 6 requests a minute for its heartbeat. While it waits, it makes 6 a minute for each worker that has a
// partition. In a simulation of 50 workers with 64 samples at a time, 1,024 partitions and a million samples of
// a minute, that was 244 requests per 1,000 samples, 83 % of them for heartbeats. The number does not depend on
// the number of samples, except for commits: a shard has at most 256 MiB, and is at most 5 minutes old.
package fleet

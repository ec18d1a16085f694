// Package failpoint kills the process at a named step, to test what a kill leaves behind. Without the
// build tag failpoint it does nothing and costs nothing.
//
// With the tag, the environment variable ROLLOUT_FAILPOINT selects one step and, after a colon, the
// number of the hit that kills the process, from 1:
//
//	ROLLOUT_FAILPOINT=wal.synced:3 rollout collect …
//
// SIGKILL ends the process: no buffer is flushed and no deferred function runs.
package failpoint

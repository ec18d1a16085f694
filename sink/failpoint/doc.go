// Package failpoint kills the process at a named step, for tests of what a kill
// leaves behind. In a program that was built without the tag failpoint it does
// nothing and costs nothing.
//
// With the tag, the environment's ROLLOUT_FAILPOINT chooses one step and, after a
// colon, which of its hits, from 1:
//
//	ROLLOUT_FAILPOINT=wal.synced:3 rollout collect …
//
// The process ends by SIGKILL, which it cannot see coming: nothing is flushed, no
// deferred function runs.
package failpoint

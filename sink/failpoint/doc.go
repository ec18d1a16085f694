// Package failpoint kills the process at a named step, so that tests can check what a kill leaves
// behind. Without the build tag failpoint, the package does nothing.
//
// With the tag, the environment variable ROLLOUT_FAILPOINT names the step. A number after a colon
// selects which hit of the step kills the process. The default is 1, the first hit:
//
//	ROLLOUT_FAILPOINT=wal.synced:3 rollout collect …
//
// The process is killed with SIGKILL, so no buffer is flushed and no deferred function runs.
package failpoint

package sink_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// linkFS returns the operating system's file system. If link returns an error, the link is not made.
func linkFS(link func(from, to string) error) sink.FS {
	return hookFS{sink.OS(), func(op string, paths ...string) error {
		if op != "link" {
			return nil
		}
		if err := link(paths[0], paths[1]); err != nil {
			return &os.LinkError{Op: op, Old: paths[0], New: paths[1], Err: err}
		}
		return nil
	}}
}

// TestFileSystemWithoutLinks tests that missing hard links are reported before anything is collected,
// with a remedy, and not as a missing permission.
func TestFileSystemWithoutLinks(t *testing.T) {
	t.Parallel()
	for errno, want := range map[error]error{
		syscall.EPERM: sink.ErrNoLinks, syscall.ENOTSUP: sink.ErrNoLinks, syscall.ENOSYS: sink.ErrNoLinks,
		syscall.EACCES: sink.ErrPermission,
	} {
		dir := t.TempDir()
		_, err := sink.Create(dir, sink.Config{FS: linkFS(func(string, string) error { return errno })})
		_, ok := errors.AsType[*sink.ShardError](err)
		both := errors.Is(err, sink.ErrNoLinks) && errors.Is(err, sink.ErrPermission)
		if !ok || !errors.Is(err, want) || both {
			t.Errorf("%v: Create() = %v, want a *ShardError of %v alone", errno, err, want)
			continue
		}
		if want == sink.ErrNoLinks && !strings.Contains(err.Error(), "use a file system") {
			t.Errorf("%v: %q suggests no remedy", errno, err)
		}
		if names, err := fs.Glob(os.DirFS(dir), "*/*"); err != nil || len(names) > 0 {
			t.Errorf("left behind: %q, %v", names, err)
		}
	}
}

// TestLinkWhoseAnswerWasLost tests a network file system that reports that the name exists because the
// answer to its own link was lost. A second entry would name the same shards: every row twice.
func TestLinkWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lost := linkFS(func(from, to string) error {
		if !strings.HasSuffix(to, "1.json") || strings.Contains(to, ".tmp-") {
			return nil
		}
		return cmp.Or[error](os.Link(from, to), syscall.EEXIST)
	})
	sinktest.Write(t, dir, sink.Config{FS: lost}, samples(1))
	compareDataset(t, dir, samples(1))
}

// TestFenced tests that a process ends when another process writes to the log, and that its samples
// are in the dataset once after the next Create.
func TestFenced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var other []byte
	stolen := linkFS(func(from, to string) error {
		if other == nil && !strings.Contains(to, ".tmp-") {
			body, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			var c sink.Commit
			if err := json.Unmarshal(body, &c); err != nil {
				return err
			}
			c.Nonce = "other"
			if other, err = sink.EncodeCommit(&c); err != nil {
				return err
			}
			if err := os.WriteFile(to, other, 0o666); err != nil {
				return err
			}
		}
		return nil
	})
	d := open(t, dir, sink.Config{FS: stolen})
	wait := start(t.Context(), t, d)
	done := make(chan error, 1)
	must(t, d.Append(t.Context(), samples(1)[0], func(err error) { done <- err }))
	closed := d.Close(t.Context())
	for _, err := range []error{closed, wait(), <-done} {
		if shard, ok := errors.AsType[*sink.ShardError](err); !ok || !errors.Is(err, sink.ErrFenced) || shard.Op != "commit" || !strings.HasSuffix(shard.Path, "1.json") {
			t.Errorf("%v, want ErrFenced", err)
		}
	}
	if log := readLog(t, dir); len(log.Commits) != 1 || log.Commits[0].Nonce != "other" {
		t.Errorf("the log has %+v, want the entry of the other process", log.Commits)
	}
	if r := open(t, dir, sink.Config{}).Recovered(); r.Known != 1 || r.Replayed != 0 {
		t.Errorf("recovered %+v, want one known sample", r)
	}
	compareDataset(t, dir, samples(1))
}

package cases_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// An installation is the output of .ci/letta.sh, with the state that every start copies:
//
//	state/pg      the data folder of a stopped PostgreSQL with Letta's tables
//	state/qwen3   tokenizer.json and tokenizer_config.json of the model
type installation struct{ home string }

// open locks the installation against reinstallation until the test ends, and creates the state if
// it does not exist.
func (in installation) open(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(in.home, ".made-from")); err != nil {
		t.Fatalf("the installation of Letta is not whole: %v; make letta installs it", err)
	}
	shared := lockFile(t, in.home+".lock", syscall.LOCK_SH)
	t.Cleanup(func() { _ = shared.Close() })
	alone := lockFile(t, filepath.Join(in.home, "state.lock"), syscall.LOCK_EX)
	defer func() { _ = alone.Close() }()
	if _, err := os.Stat(in.state()); err == nil {
		return
	}
	making := in.state() + ".new"
	noError(t, errors.Join(os.RemoveAll(making), os.Mkdir(making, 0o755)))
	in.makeState(t, making)
	noError(t, os.Rename(making, in.state()))
}

func (in installation) state() string          { return filepath.Join(in.home, "state") }
func (in installation) model() string          { return filepath.Join(in.state(), "qwen3") }
func (in installation) inVenv(p string) string { return filepath.Join(in.home, "venv", "bin", p) }

func (in installation) postgres(t *testing.T, name string) string {
	t.Helper()
	lib := filepath.Join(in.home, "venv", "lib")
	found, _ := filepath.Glob(filepath.Join(lib, "*", "site-packages", "pgserver", "pginstall", "bin", name)) // * is for example python3.11
	if len(found) == 0 {
		t.Fatalf("%s: no package pgserver with %s below it", lib, name)
	}
	return found[0]
}

// makeState makes the state that every start begins with.
func (in installation) makeState(t *testing.T, dir string) {
	t.Helper()
	// PostgreSQL runs as a user without access to the installation's parent folders, so its folder
	// is created in the temporary folder.
	work := newFolder(t)
	k := keep(t, work)
	pg := &Postgres{in: in, dir: work, MaxConnections: 20}
	defer func() {
		var err error
		if pg.p != nil {
			err = pg.p.kill()
		}
		noError(t, errors.Join(err, k.release()))
	}()
	pg.initialise(t)
	pg.start(t)
	migrate := exec.CommandContext(t.Context(), in.inVenv("python"), "-m", "alembic", "upgrade", "head")
	migrate.Dir = filepath.Join(in.home, "source")
	migrate.Env = append(os.Environ(), "LETTA_PG_URI="+pg.uri(), "LETTA_DIR="+filepath.Join(work, "home"))
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("alembic: %v\n%s", err, lastLines(out, 30))
	}
	noError(t, pg.stop())
	copyFolder(t, pg.data(), filepath.Join(dir, "pg"))
	// The model's files from the repository, in the form that Letta's transformers expect.
	from, to := bpetest.Path("qwen3"), filepath.Join(dir, "qwen3")
	z := must(zstd.NewReader(bytes.NewReader(must(os.ReadFile(filepath.Join(from, "tokenizer.json.zst")))(t))))(t)
	defer z.Close()
	noError(t, errors.Join(
		os.Mkdir(to, 0o755),
		os.WriteFile(filepath.Join(to, "tokenizer.json"), must(io.ReadAll(z))(t), 0o644),
		os.WriteFile(filepath.Join(to, "tokenizer_config.json"), must(os.ReadFile(filepath.Join(from, "tokenizer_config.json")))(t), 0o644),
	))
}

// newFolder creates a temporary folder that every user can enter. Its path is short, because it
// contains the socket of PostgreSQL.
func newFolder(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "letta-live-"))(t) //nolint:usetesting // the keeper removes it, and the path is short
	err := os.Chmod(dir, 0o711)
	for _, sub := range []string{"logs", "groups"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	noError(t, err)
	return dir
}

// copyFolder copies a folder that does not change meanwhile.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp %s: %v: %s", from, err, out)
	}
}

// lockFile waits for a lock on the file. Closing the file releases the lock.
func lockFile(t *testing.T, path string, how int) *os.File {
	t.Helper()
	f := must(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644))(t)
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatal(errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close()))
		}
	}
}

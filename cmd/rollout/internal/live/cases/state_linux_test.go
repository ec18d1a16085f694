package cases_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// An installation is the output of .ci/letta.sh, with the state that every start copies:
//
//	state/pg      the data folder of a stopped PostgreSQL with Letta's tables
//	state/qwen3   tokenizer.json and tokenizer_config.json of the model
type installation struct{ home string }

// open locks the installation against reinstallation until unlock, and creates the state if it does
// not exist.
func (in installation) open(ctx context.Context) (unlock func() error, err error) {
	if _, err := os.Stat(filepath.Join(in.home, ".made-from")); err != nil {
		return nil, fmt.Errorf("the installation of Letta is not whole: %w; make letta installs it", err)
	}
	shared, err := lockFile(in.home+".lock", syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, shared.Close())
		}
	}()
	alone, err := lockFile(filepath.Join(in.home, "state.lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = alone.Close() }()
	if _, err := os.Stat(in.state()); err == nil {
		return shared.Close, nil
	}
	making := in.state() + ".new"
	if err := errors.Join(os.RemoveAll(making), os.Mkdir(making, 0o755)); err != nil {
		return nil, err
	}
	if err := in.makeState(ctx, making); err != nil {
		return nil, fmt.Errorf("make the state that every start begins with: %w", err)
	}
	return shared.Close, os.Rename(making, in.state())
}

func (in installation) state() string          { return filepath.Join(in.home, "state") }
func (in installation) python() string         { return filepath.Join(in.home, "venv", "bin", "python") }
func (in installation) model() string          { return filepath.Join(in.state(), "qwen3") }
func (in installation) inVenv(p string) string { return filepath.Join(in.home, "venv", "bin", p) }

func (in installation) postgres(name string) (string, error) {
	lib := filepath.Join(in.home, "venv", "lib")
	versions, err := os.ReadDir(lib) // for example python3.11
	if err != nil {
		return "", err
	}
	for _, v := range versions {
		p := filepath.Join(lib, v.Name(), "site-packages", "pgserver", "pginstall", "bin", name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: no package pgserver with %s below it", lib, name)
}

func (in installation) makeState(ctx context.Context, dir string) (err error) {
	// PostgreSQL runs as a user without access to the installation's parent folders, so its folder
	// is created in the temporary folder.
	work, err := newFolder()
	if err != nil {
		return err
	}
	k, err := keep(work)
	if err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	defer func() { err = errors.Join(err, k.release()) }()
	pg := &Postgres{in: in, dir: work, MaxConnections: 20}
	if err := pg.initialise(ctx); err != nil {
		return err
	}
	if err := pg.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.p.kill()) }()
	migrate := exec.CommandContext(ctx, in.python(), "-m", "alembic", "upgrade", "head")
	migrate.Dir = filepath.Join(in.home, "source")
	migrate.Env = append(os.Environ(), "LETTA_PG_URI="+pg.uri(), "LETTA_DIR="+filepath.Join(work, "home"))
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("alembic: %w\n%s", err, lastLines(out, 30))
	}
	if err := pg.stop(); err != nil {
		return err
	}
	if err := copyFolder(ctx, pg.data(), filepath.Join(dir, "pg")); err != nil {
		return err
	}
	return unpackModel(filepath.Join(dir, "qwen3"))
}

// unpackModel writes the model's files from the repository in the form that Letta's transformers
// expect.
func unpackModel(dir string) error {
	from := bpetest.Path("qwen3")
	packed, err := os.Open(filepath.Join(from, "tokenizer.json.zst"))
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	z, err := zstd.NewReader(packed)
	if err != nil {
		return err
	}
	defer z.Close()
	tokenizer, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(from, "tokenizer_config.json"))
	if err != nil {
		return err
	}
	return errors.Join(
		os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "tokenizer.json"), tokenizer, 0o644),
		os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), config, 0o644),
	)
}

// newFolder creates a temporary folder that every user can enter. Its path is short, because it
// contains the socket of PostgreSQL.
func newFolder() (dir string, err error) {
	dir, err = os.MkdirTemp("", "letta-live-")
	if err != nil {
		return "", err
	}
	err = os.Chmod(dir, 0o711)
	for _, sub := range []string{"logs", "groups"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return dir, err
}

// copyFolder copies a folder that does not change meanwhile.
func copyFolder(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp %s: %w: %s", from, err, out)
	}
	return nil
}

// lockFile waits for a lock on the file. Closing the file releases the lock.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

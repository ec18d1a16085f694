package cases_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A Postgres is the database of a [Letta].
type Postgres struct {
	// MaxConnections takes effect at the next start of PostgreSQL.
	MaxConnections int

	in    installation
	dir   string
	port  int
	p     *process
	spent time.Duration // CPU time of the processes before p
}

// nobody is the user that runs PostgreSQL if the tests run as root, because PostgreSQL refuses
// root.
const nobody = 65534

// credential returns the user of PostgreSQL, or nil for the current user.
func credential() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

func (pg *Postgres) data() string { return filepath.Join(pg.dir, "pg") }

// uri returns a URI that the migrations and the server both accept.
func (pg *Postgres) uri() string {
	return "postgresql://postgres:postgres@127.0.0.1:" + strconv.Itoa(pg.port) + "/postgres"
}

func (pg *Postgres) initialise(ctx context.Context) error {
	if err := pg.own(os.Mkdir(pg.data(), 0o700)); err != nil {
		return err
	}
	initdb, err := pg.in.postgres("initdb")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, initdb, "-D", pg.data(), "--auth=trust", "--encoding=utf8", "--locale=C", "-U", "postgres", "--no-sync")
	cmd.SysProcAttr = credential()
	cmd.Dir = pg.data()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, lastLines(out, 30))
	}
	return nil
}

// own gives the data folder to PostgreSQL's user, unless made is an error.
func (pg *Postgres) own(made error) error {
	if made != nil || os.Geteuid() != 0 {
		return made
	}
	return filepath.WalkDir(pg.data(), func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
}

func (pg *Postgres) start(ctx context.Context) error {
	postgres, err := pg.in.postgres("postgres")
	if err != nil {
		return err
	}
	if pg.port == 0 {
		if pg.port, err = freePort(ctx); err != nil {
			return err
		}
	}
	// The data is deleted with the test, so no write is synced.
	cmd := exec.Command(postgres, "-D", pg.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(pg.port), "-k", pg.data(), // the test ends it
		"-c", "max_connections="+strconv.Itoa(pg.MaxConnections), "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	cmd.SysProcAttr = credential()
	cmd.Dir = pg.data()
	p, err := startProcess(pg.dir, "postgres", cmd)
	if err != nil {
		return err
	}
	if pg.p != nil {
		pg.spent += pg.p.cpu()
	}
	pg.p = p
	if err := waitFor(time.Minute, p.unlessEnded(func() bool {
		_, err := pg.query(ctx, "CREATE EXTENSION IF NOT EXISTS vector")
		return err == nil
	})); err != nil {
		return errors.Join(fmt.Errorf("PostgreSQL: %w\n%s", err, p.tail(30)), p.kill())
	}
	return nil
}

// stop shuts PostgreSQL down cleanly.
func (pg *Postgres) stop() error { return pg.p.stop(syscall.SIGINT, time.Minute) }

func (pg *Postgres) query(ctx context.Context, sql string) (string, error) {
	psql, err := pg.in.postgres("psql")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, psql, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", pg.uri(), "-c", sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("psql: %w: %s", err, out)
	}
	return string(out), nil
}

// Query runs SQL on Letta's database and returns its rows as text, one per line.
func (pg *Postgres) Query(t *testing.T, sql string) string {
	t.Helper()
	out := must(pg.query(t.Context(), sql))(t)
	return out
}

// Kill kills PostgreSQL.
func (pg *Postgres) Kill(t *testing.T) {
	t.Helper()
	noError(t, pg.p.kill())
}

// Restart shuts PostgreSQL down cleanly, unless it was killed, and starts it again on the same
// port. It returns when PostgreSQL answers.
func (pg *Postgres) Restart(t *testing.T) {
	t.Helper()
	noError(t, errors.Join(pg.stop(), pg.start(t.Context())))
}

// CPU returns the CPU time of PostgreSQL so far.
func (pg *Postgres) CPU() time.Duration { return pg.spent + pg.p.cpu() }

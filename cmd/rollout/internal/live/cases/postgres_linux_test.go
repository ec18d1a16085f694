package cases_test

import (
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

func (pg *Postgres) initialise(t *testing.T) {
	t.Helper()
	noError(t, os.Mkdir(pg.data(), 0o700))
	pg.own(t)
	cmd := exec.CommandContext(t.Context(), pg.in.postgres(t, "initdb"),
		"-D", pg.data(), "--auth=trust", "--encoding=utf8", "--locale=C", "-U", "postgres", "--no-sync")
	cmd.SysProcAttr = credential()
	cmd.Dir = pg.data()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, lastLines(out, 30))
	}
}

// own gives the data folder to PostgreSQL's user.
func (pg *Postgres) own(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		noError(t, filepath.WalkDir(pg.data(), func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
	}
}

func (pg *Postgres) start(t *testing.T) {
	t.Helper()
	if pg.port == 0 {
		pg.port = freePort(t)
	}
	// The data is deleted with the test, so no write is synced.
	cmd := exec.Command(pg.in.postgres(t, "postgres"), "-D", pg.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(pg.port), "-k", pg.data(), // the test ends it
		"-c", "max_connections="+strconv.Itoa(pg.MaxConnections), "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	cmd.SysProcAttr = credential()
	cmd.Dir = pg.data()
	p := startProcess(t, pg.dir, "postgres", cmd)
	if pg.p != nil {
		pg.spent += pg.p.cpu()
	}
	pg.p = p
	if err := waitFor(time.Minute, p.unlessEnded(func() bool {
		return pg.command(t, "CREATE EXTENSION IF NOT EXISTS vector").Run() == nil
	})); err != nil {
		t.Fatal(errors.Join(fmt.Errorf("PostgreSQL: %w\n%s", err, p.tail(30)), p.kill()))
	}
}

// stop shuts PostgreSQL down cleanly.
func (pg *Postgres) stop() error { return pg.p.stop(syscall.SIGINT, time.Minute) }

// command returns a command that runs SQL on Letta's database.
func (pg *Postgres) command(t *testing.T, sql string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), pg.in.postgres(t, "psql"), "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", pg.uri(), "-c", sql)
}

// Query runs SQL on Letta's database and returns its rows as text, one per line.
func (pg *Postgres) Query(t *testing.T, sql string) string {
	t.Helper()
	out, err := pg.command(t, sql).CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	return string(out)
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
	noError(t, pg.stop())
	pg.start(t)
}

// CPU returns the CPU time of PostgreSQL so far.
func (pg *Postgres) CPU() time.Duration { return pg.spent + pg.p.cpu() }

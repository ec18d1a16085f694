package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"
)

// Config configures a Store. Dir is required. In every other field, zero selects the default.
type Config struct {
	// Dir is the folder of the sessions. Open creates it if it does not exist. Only one process at a
	// time can write to it.
	Dir string
	// Mode contains the permission bits of new files before the umask is applied. Default 0666.
	Mode fs.FileMode
	// MaxAge is how long a session is kept after the last write to its file. It applies to sealed
	// sessions and to open sessions without a call in flight, also if they are damaged or their End
	// failed. Default: forever.
	MaxAge time.Duration
	// MaxBytes limits the total size of the sealed sessions. The oldest are removed first. Default:
	// no limit.
	MaxBytes int64
	// SyncEvery is the minimum time between two syncs of the written files. Default 100 ms.
	SyncEvery time.Duration
	// Log receives a message about each damaged or removed session, and about failed writes. By
	// default, these messages are discarded.
	Log *slog.Logger

	maxFiles int // number of files that stay open until the next sync in the background. Default 128.
}

func (c Config) withDefaults() Config {
	c.Mode = cmp.Or(c.Mode, 0o666)
	c.SyncEvery = cmp.Or(c.SyncEvery, 100*time.Millisecond)
	c.maxFiles = cmp.Or(c.maxFiles, maxFiles)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Validate joins and returns all errors that it finds in the config.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Dir != "", "dir: required")
	check(c.Mode&^fs.ModePerm == 0, "mode: %v: must contain only permission bits", c.Mode)
	check(c.MaxAge >= 0, "max_age: %v: must be ≥ 0", c.MaxAge)
	check(c.MaxBytes >= 0, "max_bytes: %d: must be ≥ 0", c.MaxBytes)
	check(c.SyncEvery >= 0, "sync_every: %v: must be ≥ 0", c.SyncEvery)
	return errors.Join(errs...)
}

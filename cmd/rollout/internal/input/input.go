// Package input reads files that a person named: with a bound, and with a deadline where
// they are pipes. The name of a device, of a pipe that nobody writes to or of some huge
// file is an error that says so, at once and in little memory.
package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
)

// The bounds. What is larger is another file than the one that was meant.
const (
	MaxConfig    = 4 << 20
	MaxSecret    = 64 << 10
	MaxAgentFile = 64 << 20
	MaxModelFile = 512 << 20 // the largest tokenizer.json that is published has some 40 MB
	MaxPEM       = 16 << 20
)

// Wait is how long a pipe may be silent before its first byte, and how long one may
// take whose content has a bound.
const Wait = 10 * time.Second

// errFolder is the error of a folder that was given for a file.
var errFolder = errors.New("is a folder, not a file")

// An File is a file that is read from its beginning. Pipes are waited for until their
// first byte comes, no longer than wait.
type File struct {
	F     *os.File
	info  fs.FileInfo
	wait  time.Duration
	until time.Time // of a pipe whose first byte is awaited
	whole bool      // until is for all of it
}

// Open opens a file for reading. For the writer of a pipe it waits no longer than
// wait. The caller closes it.
func Open(path string, wait time.Duration) (*File, error) {
	f, err := openWithin(path, wait)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "read", Path: path, Err: errFolder}
	}
	if err != nil {
		_ = f.Close() // it was read only
		return nil, err
	}
	in := &File{F: f, info: info, wait: wait}
	if info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) != 0 {
		in.until = time.Now().Add(wait)
		_ = f.SetReadDeadline(in.until) // a device such as /dev/zero has none, and does not wait
	}
	return in, nil
}

// Close closes the file.
func (in *File) Close() error { return in.F.Close() }

func (in *File) Read(p []byte) (int, error) {
	n, err := in.F.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, silent(in.F.Name(), in.wait)
	case n > 0 && !in.whole && !in.until.IsZero():
		in.until = time.Time{}
		_ = in.F.SetReadDeadline(time.Time{}) // as above
	}
	return n, err
}

// openWithin opens a file, but does not wait for ever for the writer of a pipe.
func openWithin(path string, wait time.Duration) (*os.File, error) {
	if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1) // one: nobody may be there to take it
	go func() {                  // the system's open cannot be interrupted; the program ends after the error
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-time.After(wait):
		return nil, silent(path, wait)
	}
}

func silent(path string, wait time.Duration) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("nothing was written to it within %v", wait)}
}

// Read reads a whole file of at most so many bytes.
func Read(path string, most int64, wait time.Duration) ([]byte, error) {
	in, err := Open(path, wait)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // read only
	tooLarge := &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("has more than %s: is this the right file?", human.Size(most))}
	if in.info.Mode().IsRegular() && in.info.Size() > most {
		return nil, tooLarge
	}
	var head [1]byte
	n, err := in.Read(head[:])
	if in.until.IsZero() && !in.info.Mode().IsRegular() { // a pipe that has begun: now for the rest of it
		in.until, in.whole = time.Now().Add(wait), true
		_ = in.F.SetReadDeadline(in.until) // as above
	}
	b := head[:n:n]
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(in, most))
		b = append(b, rest...)
	}
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case int64(len(b)) > most:
		return nil, tooLarge
	}
	return b, nil
}

// Package input reads files whose paths the user specifies. It limits the size of the files and the
// time to wait for pipes. If a path is a device, a pipe without a writer or a huge file, reading
// fails quickly and uses little memory.
package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// Size limits. A larger file is probably not the file that the user meant.
const (
	MaxConfig    = 4 << 20
	MaxSecret    = 64 << 10
	MaxAgentFile = 64 << 20
	MaxModelFile = 512 << 20 // the largest published tokenizer.json has about 40 MB
	MaxPEM       = 16 << 20
)

// Wait is the maximum time to wait for the first byte from a pipe. If the content has a size limit,
// Wait is also the maximum time to wait for the rest.
const Wait = 10 * time.Second

var errFolder = errors.New("a folder, not a file")

// A File is a file opened with [Open]. If the file is a pipe, Read limits the time to wait for the
// first byte.
type File struct {
	F     *os.File
	info  fs.FileInfo
	wait  time.Duration
	until time.Time // deadline for the first byte from a pipe
	whole bool      // true if until is the deadline for the whole content
}

// Open opens a file for reading. If the file is a pipe, Open waits for a writer, but no longer than
// the duration wait. The caller must close the file.
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
		_ = f.Close() // read only
		return nil, err
	}
	in := &File{F: f, info: info, wait: wait}
	if info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) != 0 {
		in.until = time.Now().Add(wait)
		_ = f.SetReadDeadline(in.until) // fails for a device such as /dev/zero, but such a device does not block
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
		_ = in.F.SetReadDeadline(time.Time{}) // can fail; see Open
	}
	return n, err
}

// openWithin opens a file. If the file is a pipe, openWithin limits the time to wait for its
// writer.
func openWithin(path string, wait time.Duration) (*os.File, error) {
	if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1) // buffered, because openWithin might have returned
	go func() {                  // os.Open cannot be interrupted; the program ends soon after the error
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
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("no data within %v", wait)}
}

// Read reads a whole file. It returns an error if the file has more than most bytes.
func Read(path string, most int64, wait time.Duration) ([]byte, error) {
	in, err := Open(path, wait)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // read only
	tooLarge := &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %s: is this the right file?", format.Size(most))}
	if in.info.Mode().IsRegular() && in.info.Size() > most {
		return nil, tooLarge
	}
	var head [1]byte
	n, err := in.Read(head[:])
	if in.until.IsZero() && !in.info.Mode().IsRegular() { // the first bytes of a pipe have arrived; limit the time to wait for the rest
		in.until, in.whole = time.Now().Add(wait), true
		_ = in.F.SetReadDeadline(in.until) // can fail; see Open
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

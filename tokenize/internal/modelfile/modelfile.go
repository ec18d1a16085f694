// Package modelfile reads one file from a model's folder into memory. It rejects a file that is not
// regular, that is too large or that is only a Git LFS pointer. It makes these checks before it
// allocates memory for the content.
package modelfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
)

// An Error reports why a file was rejected. The file exists but cannot be used as a model's file.
type Error struct {
	Name     string
	Reason   string
	TooLarge bool
}

func (e *Error) Error() string { return e.Name + ": " + e.Reason }

// pointerStart is the start of a Git LFS pointer file. Git LFS replaces the pointer file when it
// fetches the real file.
const pointerStart = "version https://git-lfs.github.com/spec/v1"

// Read returns the content of a file. The parameter most is the maximum size in bytes. Read
// allocates as many bytes as Stat reports. If the file has more or fewer bytes, Read returns an
// error. If the file is missing, the error wraps fs.ErrNotExist.
func Read(folder fs.FS, name string, most int64) ([]byte, error) {
	// Opening a named pipe blocks until the pipe has a writer, so check the type of the file first.
	info, err := fs.Stat(folder, name)
	if err != nil {
		return nil, err
	}
	if err := check(info, name, most); err != nil {
		return nil, err
	}
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file was only read, so a close error loses nothing
	// Check again, because another file might have replaced this file, or the file system might
	// have decompressed the file.
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := check(info, name, most); err != nil {
		return nil, err
	}
	return read(f, name, int(info.Size()))
}

func check(info fs.FileInfo, name string, most int64) error {
	mode, kind := info.Mode(), ""
	switch {
	case mode.IsRegular():
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	default:
		kind = "a special file"
	}
	if kind != "" {
		return &Error{Name: name, Reason: kind + ", not a file"}
	}
	if info.Size() > most {
		return &Error{Name: name, Reason: fmt.Sprintf("%d bytes (limit %d): is this the right file?", info.Size(), most), TooLarge: true}
	}
	return nil
}

// read reads f, which must have the given size. It checks the first bytes before it allocates
// memory for the rest. The first bytes identify a Git LFS pointer or a file whose content was never
// written.
func read(f io.Reader, name string, size int) ([]byte, error) {
	const head = 512
	buf := make([]byte, min(size, head))
	n, err := io.ReadFull(f, buf)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil, sizeError(name, size, n)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case bytes.HasPrefix(buf, []byte(pointerStart)):
		return nil, &Error{Name: name, Reason: `a Git LFS pointer, not the file itself: run "git lfs pull" in the model's repository`}
	case n > 0 && len(bytes.Trim(buf, "\x00")) == 0:
		return nil, &Error{Name: name, Reason: fmt.Sprintf("the first %d bytes are NUL, so the download is incomplete: download the file again", n)}
	}
	if size > head {
		buf = append(make([]byte, 0, size), buf...)[:size]
		k, err := io.ReadFull(f, buf[n:])
		if n += k; err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, sizeError(name, size, n)
		} else if err != nil {
			return nil, fmt.Errorf("%s: byte %d: %w", name, n, err)
		}
	}
	var more [1]byte
	switch k, err := io.ReadFull(f, more[:]); {
	case k > 0:
		return nil, &Error{Name: name, Reason: fmt.Sprintf("the file grew past %d bytes while rollout read it: another process is writing to it", size)}
	case err != io.EOF:
		return nil, fmt.Errorf("%s: byte %d: %w", name, n, err)
	}
	return buf, nil
}

func sizeError(name string, size, n int) error {
	return &Error{Name: name, Reason: fmt.Sprintf("the file ends at byte %d of %d: another process is writing to the file, or the file is damaged", n, size)}
}

package store

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/sink/frame"
)

// maxFiles is the default number of files that stay open until the next sync in the background. If
// more files have bytes that are not synced, a write syncs and closes its file at once. So thousands
// of sessions do not need thousands of file descriptors.
const maxFiles = 128

// buffers contains buffers for the frames of one write.
var buffers sync.Pool

// maxBuffer is the largest buffer that is reused.
const maxBuffer = 1 << 20

func takeBuffer() *bytes.Buffer {
	if buf, ok := buffers.Get().(*bytes.Buffer); ok {
		return buf
	}
	return new(bytes.Buffer)
}

func giveBuffer(buf *bytes.Buffer) {
	if buf.Cap() <= maxBuffer {
		buf.Reset()
		buffers.Put(buf)
	}
}

// write appends the frames that fill writes to the file of the session. If it fails, the error names
// the folder, and the file contains none of the frames. There is one exception: if too many files are
// open, write also syncs. If this sync fails, the file contains all frames, and x.failed is set. The
// caller must hold x.mu.
func (x *Session) write(fill func(*frame.Writer) error) error {
	if x.failed != nil {
		return x.failed
	}
	buf := takeBuffer()
	defer giveBuffer(buf)
	var err error
	w := frame.Continue(buf, x.size, x.durable)
	if x.size == 0 {
		w, err = frame.NewWriter(buf, header(x.id))
	}
	if err == nil {
		err = fill(w)
	}
	if err != nil {
		return x.err(err)
	}
	if err := x.writeBytes(buf.Bytes()); err != nil {
		return x.err(x.store.failed(err))
	}
	x.store.wrote()
	if x.store.markDirty(x) {
		return nil
	}
	// Too many files are open.
	return x.sync()
}

func (x *Session) writeBytes(b []byte) error {
	if x.file == nil {
		f, err := os.OpenFile(x.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		x.file = f
	}
	if x.torn {
		if err := x.store.disk.truncate(x.file, x.size); err != nil {
			return err
		}
		x.torn = false
	}
	if _, err := x.store.disk.write(x.file, b, x.size); err != nil {
		x.torn = x.store.disk.truncate(x.file, x.size) != nil
		return err
	}
	x.size += int64(len(b))
	return nil
}

// sync syncs the file and closes it. The caller must hold x.mu.
func (x *Session) sync() error {
	if x.failed != nil {
		return x.failed
	}
	if x.file == nil {
		return nil
	}
	if err := x.syncFile(x.file); err != nil {
		x.fail(err)
		return x.failed
	}
	x.durable = x.size
	x.close()
	return nil
}

// fail records that a sync failed. The system can have dropped any bytes that were not synced, so
// nothing more is written to the file.
func (x *Session) fail(err error) {
	if x.failed == nil {
		x.failed = x.err(x.store.failed(err))
	}
	x.close()
}

func (x *Session) close() {
	if x.file != nil {
		_ = x.file.Close() // every written byte is synced, or the error was reported
		x.file = nil
	}
	x.store.markClean(x)
}

// markDirty adds the session to the files that the background syncs, and reports whether there was
// room.
func (s *Store) markDirty(x *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.dirty[x]; !ok && len(s.dirty) >= s.cfg.maxFiles {
		return false
	}
	s.dirty[x] = struct{}{}
	return true
}

func (s *Store) markClean(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirty, x)
}

// syncAll syncs all files, for Close. It waits for the writes in progress.
func (s *Store) syncAll() error {
	s.begins.Wait()
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	var errs []error
	for _, x := range list {
		x.mu.Lock()
		errs = append(errs, x.deliver())
		if x.file != nil {
			errs = append(errs, x.sync())
		}
		x.mu.Unlock()
	}
	return errors.Join(append(errs, s.syncNames())...)
}

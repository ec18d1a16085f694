//go:build unix

package reward

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// A stderrPipe is the pipe between the standard error of a process and its talk. An exec.Cmd could copy the standard
// error, too, but a line can then arrive after the answer that the program wrote after it.
type stderrPipe struct {
	r, w *os.File
	buf  [16 << 10]byte
	done chan struct{} // closed when follow has returned
}

// connect connects a command that has not been started.
func (t *talk) connect(cmd *exec.Cmd) (err error) {
	t.pipe.r, t.pipe.w, err = os.Pipe()
	cmd.Stderr = t.pipe.w
	return err
}

// started reads what the program writes, until close. If the program did not start, it closes the pipe.
func (t *talk) started(ok bool) {
	_ = t.pipe.w.Close() // the program has its own copy of this end
	if !ok {
		_ = t.pipe.r.Close()
		return
	}
	t.pipe.done = make(chan struct{})
	go t.follow()
}

func (t *talk) follow() {
	defer close(t.pipe.done)
	conn, err := t.pipe.r.SyscallConn()
	for ended := false; err == nil && !ended; {
		err = conn.Read(func(fd uintptr) bool {
			n, err := t.readNow(fd)
			ended = n <= 0
			return !errors.Is(err, syscall.EAGAIN)
		})
	}
}

// readNow reads a part of what the program has written. The error is EAGAIN if there is nothing to read.
func (t *talk) readNow(fd uintptr) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if n, err = syscall.Read(int(fd), t.pipe.buf[:]); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if n > 0 {
		t.take(t.pipe.buf[:n])
	}
	return n, err
}

// maxReads bounds catchUp, because a child of the program can write all the time. A pipe holds less.
const maxReads = 128

// catchUp reads everything that the program has written so far.
func (t *talk) catchUp() {
	conn, err := t.pipe.r.SyscallConn()
	if err != nil {
		return // the pipe is closed
	}
	_ = conn.Control(func(fd uintptr) { // fails if the pipe is closed
		for range maxReads {
			if n, _ := t.readNow(fd); n <= 0 {
				return
			}
		}
	})
}

// close reads the rest. The program must have exited.
func (t *talk) close() {
	t.catchUp()
	_ = t.pipe.r.Close()
	<-t.pipe.done
}

package subprocess

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

func isTooLong(err error) bool { return errors.Is(err, syscall.E2BIG) }

// A proc is one process in /proc.
type proc struct {
	pid, parent, group, session int
	zombie                      bool
}

// processes lists all processes of the system. It begins with the processes that usually are the
// youngest, because a young process can soon have children in its place.
func processes() ([]proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	var all []proc
	for _, pid := range pids {
		if p, ok := readProc(pid); ok { // otherwise the process has exited in the meantime
			all = append(all, p)
		}
	}
	return all, nil
}

// readProc parses /proc/PID/stat: "PID (NAME) STATE PARENT GROUP SESSION …". The name can contain
// any character.
func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) < 4 {
		return proc{}, false
	}
	p := proc{pid: pid, zombie: fields[0][0] == 'Z' || fields[0][0] == 'X'}
	for i, to := range []*int{&p.parent, &p.group, &p.session} {
		if *to, err = strconv.Atoi(string(fields[i+1])); err != nil {
			return proc{}, false
		}
	}
	return p, true
}

// hasMark reports whether a process started with a mark that begins with the given text. The
// environment of a process of another user cannot be read.
func hasMark(pid int, mark []byte) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && (bytes.HasPrefix(b, mark[1:]) || bytes.Contains(b, mark))
}

// KillMarked kills all processes whose mark begins with the given text, and all processes below
// them or in their sessions. It returns the number of processes that are still alive after the
// given time. It does not kill this process or the processes above it.
func KillMarked(mark string, limit time.Duration) (left int, err error) {
	if mark == "" {
		return 0, errors.New("subprocess: the mark is empty")
	}
	text := []byte("\x00" + MarkVar + "=" + mark)
	end, pause := time.Now().Add(limit), time.Millisecond
	for empty := 0; ; {
		victims, err := marked(text)
		if err != nil {
			return 0, fmt.Errorf("subprocess: %w", err)
		}
		if len(victims) > 0 {
			empty = 0
		} else if empty++; empty == emptyScans {
			return 0, nil
		}
		if time.Now().After(end) {
			return len(victims), nil
		}
		kill(victims)
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// emptyScans is the number of times in a row that /proc must contain no process with the mark.
// Processes that replace each other all the time can be missing in one listing.
const emptyScans = 3

// marked lists the living processes with a mark that begins with text, and their families.
func marked(text []byte) ([]proc, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	roots := map[int]bool{}
	for i := range all {
		if !all[i].zombie && hasMark(all[i].pid, text) {
			roots[all[i].pid] = true
		}
	}
	return family(all, roots), nil
}

// family returns the living processes among the roots, below the roots, and in the sessions of such
// processes. Run creates the session, so it contains only processes of the program. The session of
// this process is an exception.
func family(all []proc, roots map[int]bool) []proc {
	if len(roots) == 0 {
		return nil
	}
	self, above := os.Getpid(), map[int]bool{1: true}
	parents := map[int]int{}
	own := 0
	for i := range all {
		parents[all[i].pid] = all[i].parent
		if all[i].pid == self {
			own = all[i].session
		}
	}
	for pid := self; pid > 1 && !above[pid]; pid = parents[pid] {
		above[pid] = true
	}
	in, sessions := map[int]bool{}, map[int]bool{}
	for grew := true; grew; {
		grew = false
		for i := range all {
			p := &all[i]
			if in[p.pid] || above[p.pid] || !roots[p.pid] && !in[p.parent] && !sessions[p.session] {
				continue
			}
			in[p.pid], grew = true, true
			if p.session > 0 && p.session != own {
				sessions[p.session] = true
			}
		}
	}
	var victims []proc
	for i := range all {
		if p := all[i]; in[p.pid] && !p.zombie {
			if p.session == own {
				p.group = 0 // the group can contain other programs
			}
			victims = append(victims, p)
		}
	}
	return victims
}

// kill kills processes and their groups. The kernel kills a group as a whole, so a process that
// forks all the time cannot escape, unless every new process leaves the group.
func kill(victims []proc) {
	groups := map[int]bool{}
	for i := range victims {
		if g := victims[i].group; g > 1 && !groups[g] {
			groups[g] = true
			_ = syscall.Kill(-g, syscall.SIGKILL)
		}
	}
	for i := range victims {
		_ = syscall.Kill(victims[i].pid, syscall.SIGKILL) // fails if the process has exited
	}
}

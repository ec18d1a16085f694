//go:build unix

package subprocess

import (
	"os/exec"
	"syscall"
)

// OwnGroup puts the program into its own process group. Call it before the program starts. The
// program can then be killed together with its children, and an interrupt from the terminal does
// not reach the program.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills a started program and all processes in its group.
func KillGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if the whole group has exited
	_ = cmd.Process.Kill()
}

// ownSession puts the program into its own session, which includes its own group. Unlike in OwnGroup,
// the program cannot open the terminal.
func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// signalOf returns the name of the signal that ended a program, or "".
func signalOf(e *exec.ExitError) string {
	if status, ok := e.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}

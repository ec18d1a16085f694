//go:build unix

package reward

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the program into its own process group. The program can then be killed together
// with its children, and an interrupt from the terminal does not reach the program.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the program and all processes in its group.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if the whole group has exited
	_ = cmd.Process.Kill()
}

//go:build !unix

package reward

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup ends only the program: its children are unknown here.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

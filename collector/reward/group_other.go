//go:build !unix

package reward

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup kills only the program, because its children are not known on this platform.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

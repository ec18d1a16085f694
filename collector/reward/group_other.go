//go:build !unix

package reward

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup kills only the program, because the children of the program are unknown on this
// platform.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

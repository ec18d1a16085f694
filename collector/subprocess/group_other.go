//go:build !unix

package subprocess

import "os/exec"

// OwnGroup does nothing on this platform.
func OwnGroup(*exec.Cmd) {}

// KillGroup kills only the program, because its children are unknown on this platform.
func KillGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func ownSession(cmd *exec.Cmd) { OwnGroup(cmd) }

func signalOf(*exec.ExitError) string { return "" }

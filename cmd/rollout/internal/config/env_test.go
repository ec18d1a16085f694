package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A variable that looks like a setting but is not one is an error. Variables that references use,
// and variables of other programs, are not.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	environ := []string{
		"ROLLOUT_RUN_RETRYS=3", "ROLLOUT_SERVER_URL=http://a", "ROLLOUT_OUTPUT_COLOUR=red", "ROLLOUT_TASKS_LIMITS=", // the last one is empty
		"ROLLOUT_TASKS_LIMIT=4", "ROLLOUT_SERVER_TOKEN=canary", "ROLLOUT_PYTHON=python3", "ROLLOUT_KILLS=3", "ROLLOUT_SOAK=1h", "ROLLOUT_SEED=1",
		"ROLLOUT_FAILPOINT=wal.synced", "ROLLOUT_HOME=/x", "ROLLOUTS=1", "PATH=/bin",
	}
	getenv := func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	load := AddFlags(cmd, getenv, environ)
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("server: {password: '${env:ROLLOUT_SERVER_TOKEN}'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.SetArgs([]string{"-c", path})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	l, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, err := range l.Bad {
		got = append(got, err.Error())
	}
	want := []string{
		"$ROLLOUT_RUN_RETRYS: is not a setting; did you mean ROLLOUT_RUN_RETRIES?",
		"$ROLLOUT_SERVER_URL: is not a setting; did you mean ROLLOUT_SERVER_URLS?",
		"$ROLLOUT_OUTPUT_COLOUR: is not a setting; rollout config show lists all settings",
	}
	if !slices.Equal(got, want) {
		t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

package runfolder

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// An Identity contains the settings and digests that the rows of a run depend on, except for the
// tasks. A resumed run must have the same identity, except for the differences that [Changes]
// allows. All other settings can change.
type Identity struct {
	// SHA256 is the digest of the fields below, the tokenizer and the template.
	SHA256 string `json:"sha256"`
	// Settings contains the values of the settings that rows depend on.
	Settings map[string]json.RawMessage `json:"settings"`
	// AgentFileSHA256 is the digest of the agent file's content. It is empty if there is no agent
	// file.
	AgentFileSHA256 string `json:"agent_file_sha256,omitempty"`
	// ScorerFiles has the digest of each file of the user that rewards depend on, by its path. A resumed
	// run can have other digests, because a scorer can be corrected; see [Identity.ScorerChanges].
	ScorerFiles map[string]string `json:"scorer_files,omitempty"`
}

// keptSetting reports whether a setting must keep its value for the life of a run. The rules for
// the tasks, the number of samples and the limit are in snapshot.go.
func keptSetting(key string) bool {
	switch key {
	case "agent.keep", "harness.timeout", "reward.processes", "reward.timeout", "tokens.experimental", "tokens.tap_token":
		return false // rows do not depend on the setting
	case "tokens.policy_version", "tokens.one_engine", "tokens.policy_version_delay":
		return false // each invocation sets its own value
	case "agent.file", "tokens.tokenizer":
		return false // Identity compares the digest of the content, not the path
	case "output.messages", "output.weight_versions", "output.routed_experts", "output.sampling_mask", "server.timezone":
		return true
	}
	section, _, _ := strings.Cut(key, ".")
	return section == "agent" || section == "harness" || section == "tokens" || section == "reward"
}

// IdentityOf returns the identity of a run with this configuration and the digests of the scorer's files.
func IdentityOf(l *config.Loader, model *Model, scorerFiles map[string]string) (Identity, error) {
	id := Identity{Settings: map[string]json.RawMessage{}, ScorerFiles: scorerFiles}
	for _, s := range l.Settings {
		if !keptSetting(s.Key) {
			continue
		}
		raw, err := s.Json()
		if err != nil {
			return id, err
		}
		id.Settings[s.Key] = raw
	}
	if path := l.Config.Agent.File; path != "" {
		b, err := input.Read(path, input.MaxAgentFile, input.Wait)
		if err != nil {
			return id, exit.Usagef("agent.file: %w", err)
		}
		sum := sha256.Sum256(b)
		id.AgentFileSHA256 = hex.EncodeToString(sum[:])
	}
	b, err := json.Marshal(struct {
		Identity
		Tokenizer, Template string
		Engine              string `json:",omitempty"`
	}{id, model.Tokenizer(), model.template(), model.engine()})
	if err != nil {
		return id, err
	}
	sum := sha256.Sum256(b)
	id.SHA256 = hex.EncodeToString(sum[:])
	return id, nil
}

// Changes compares the run with the invocation that resumes it. It returns a complaint for each
// difference that would affect rows. The parameter rows is true if the dataset has rows. If the
// dataset has no rows, the tokens.* settings can change. A tokenizer can always be added to a run
// that has none, because the existing rows needed no tokenizer.
func Changes(l *config.Loader, had *Info, now Identity, model *Model, rows bool) exit.Complaints {
	var bad exit.Complaints
	for _, s := range l.Settings {
		given, kept := now.Settings[s.Key]
		if !kept || !rows && strings.HasPrefix(s.Key, "tokens.") {
			continue
		}
		before := had.Identity.Settings[s.Key]
		if s.Key == "server.timezone" && showValue(before) == "none" {
			continue // the proofs of existing rows hold in every time zone
		}
		if before = format.CompactJSON(before); !bytes.Equal(before, given) {
			bad = append(bad, differs(s.Key, showValue(before), showValue(given), s.Given()))
		}
	}
	if had.Identity.AgentFileSHA256 != now.AgentFileSHA256 {
		bad = append(bad, differs("agent.file", cmp.Or(ShortDigest(had.Identity.AgentFileSHA256), "no agent file"),
			cmp.Or(ShortDigest(now.AgentFileSHA256), "no agent file"), l.ByKey["agent.file"].Given()))
	}
	if !rows || had.Model == nil {
		return bad
	}
	from := l.ByKey["tokens.tokenizer"].Given()
	if a, b := had.Model.Tokenizer(), model.Tokenizer(); a != b {
		bad = append(bad, differs("tokens.tokenizer", cmp.Or(ShortDigest(a), "no tokenizer"), cmp.Or(ShortDigest(b), "no tokenizer"), from))
	}
	if a, b := had.Model.template(), model.template(); a != b && model != nil {
		bad = append(bad, differs("tokens.tokenizer: chat template", ShortDigest(a), ShortDigest(b), from))
	}
	if a, b := had.Model.engine(), model.engine(); a != b && model != nil {
		bad = append(bad, differs("tokens.tokenizer: config.json and generation_config.json", cmp.Or(a, "neither file"), cmp.Or(b, "neither file"), from))
	}
	return bad
}

// ScorerChanges returns a description of each file of the scorer whose content differs.
func (i *Identity) ScorerChanges(now Identity) (all []string) {
	for _, path := range slices.Sorted(maps.Keys(now.ScorerFiles)) {
		if had := i.ScorerFiles[path]; had != now.ScorerFiles[path] {
			all = append(all, fmt.Sprintf("%s has %s, before %s", termsafe.Text(path, 60), ShortDigest(now.ScorerFiles[path]), cmp.Or(ShortDigest(had), "no digest")))
		}
	}
	return all
}

func differs(what, had, given, from string) error {
	if had == given {
		had, given = "one value", "another"
	}
	return fmt.Errorf("%s: the run has %s, but you set %s%s", what, had, given, from)
}

func showValue(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == `""`:
		return "none"
	case json.Unmarshal(raw, &text) == nil:
		return termsafe.Text(text, 60)
	}
	return termsafe.Text(string(raw), 60)
}

// ShortDigest returns "sha256 " and the first 12 characters of hex, or "" if hex is empty.
func ShortDigest(hex string) string {
	if len(hex) > 12 {
		hex = hex[:12]
	}
	if hex == "" {
		return ""
	}
	return "sha256 " + hex
}

// ServerChanges compares the current servers with the servers in run.json. A different version of
// the same Letta release causes a notice. A different release or a different model behind the
// handle causes a complaint, because the sampled tokens can then differ. A different URL causes
// neither.
func ServerChanges(had, now []Server) (bad exit.Complaints, notices []string) {
	if len(had) == 0 {
		return nil, nil
	}
	for _, n := range now {
		h := had[0]
		for _, s := range had {
			if s.URL == n.URL {
				h = s
			}
		}
		switch {
		case n.Version == h.Version:
		case release(n.Version) == release(h.Version):
			notices = append(notices, fmt.Sprintf("server %s has version %s; the run started with version %s", n.URL, n.Version, h.Version))
		default:
			bad = append(bad, fmt.Errorf("server %s has version %s, but the run started with version %s", n.URL, n.Version, h.Version))
		}
		if h.Model == nil || n.Model == nil || h.Model.Handle != n.Model.Handle { // Changes reports a changed handle
			continue
		}
		for _, f := range []struct{ what, had, now string }{
			{"name", h.Model.Name, n.Model.Name},
			{"context window", fmt.Sprint(h.Model.ContextWindow), fmt.Sprint(n.Model.ContextWindow)},
			{"endpoint type", h.Model.EndpointType, n.Model.EndpointType},
		} {
			if f.had != f.now {
				bad = append(bad, fmt.Errorf("server %s: the %s of model %s is %s, but the run has %s", n.URL, f.what, n.Model.Handle, cmp.Or(f.now, "-"), cmp.Or(f.had, "-")))
			}
		}
	}
	return bad, notices
}

// release returns the first two components of a version, such as "0.16".
func release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Refuse returns an error that lists the reasons why the run cannot be resumed, or nil if bad is
// empty.
func Refuse(dir string, bad exit.Complaints) error {
	if len(bad) == 0 {
		return nil
	}
	for i, err := range bad {
		bad[i] = fmt.Errorf("%s: %w", dir, err)
	}
	return exit.Refuse(exit.Folder, bad,
		"continue with the run's own settings ("+ResumeCommand(dir)+"), or start another run with --out NEW. A run keeps its tasks. After its first row, it also keeps all settings that affect rows")
}

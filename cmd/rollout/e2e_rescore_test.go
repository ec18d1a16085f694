package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// rewardsOf returns the reward of each sample in the newest complete scores set, as text.
func rewardsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	log := must(sink.ReadLog(dir))(t)
	log.UseScores(must(sink.ReadScores(nil, dir, "", ""))(t))
	rewards := map[string]string{}
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Facts(s)) {
			text := "none"
			if r.Reward != nil {
				text = fmt.Sprint(*r.Reward)
			}
			rewards[r.SampleKey] = text
		}
	}
	return rewards
}

// setShards returns the names of the shards in a scores set, which contain digests.
func setShards(t *testing.T, dir, name string) (names []string) {
	t.Helper()
	for _, path := range must(filepath.Glob(filepath.Join(dir, "scores", name, "scores", "*")))(t) {
		names = append(names, filepath.Base(path))
	}
	return names
}

// namedSet returns the scores set that the card of a run names. The set must be complete.
func namedSet(t *testing.T, dir string) string {
	t.Helper()
	card := string(must(os.ReadFile(filepath.Join(dir, "README.md")))(t))
	contains(t, card, "`rollout rescore` puts newer rewards into `scores/`")
	_, name, _ := strings.Cut(card, "the newest complete scores set was `")
	name, _, _ = strings.Cut(name, "`")
	if name != "" {
		must(sink.ReadScores(nil, dir, "", name))(t)
	}
	return name
}

// A rescore is killed at each step. Until the end, readers use the older set. The same command then writes the same
// bytes as a rescore that was not killed.
func TestRescoreKilled(t *testing.T) {
	t.Parallel()
	bin := failpointProgram(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 40, "--samples", "2", "--reward", "exact", "--tokenizer", lettasim.ModelName, "--quiet", "--preflight", "connect")
	mustRun(t, exit.OK, args...)
	before := rewardsOf(t, dir)
	rescore := []string{"rescore", dir, "--reward", "number"}
	mustRun(t, exit.OK, rescore...)
	want, shards := rewardsOf(t, dir), setShards(t, dir, "0001")
	if maps.Equal(before, want) || len(shards) != 1 {
		t.Fatalf("the scorer changes nothing, or %d shards", len(shards))
	}
	if got := namedSet(t, dir); got != "0001" {
		t.Errorf("the card names the set %q", got)
	}
	forget := func() {
		noError(t, errors.Join(os.RemoveAll(filepath.Join(dir, "scores")), os.Remove(filepath.Join(dir, "README.md"))))
		noError(t, sink.WriteCard(dir, sink.Config{RunID: must(sink.ReadLog(dir))(t).Commits[0].RunID}))
	}
	forget()
	steps := slices.Concat(failpoint.ScoreNames(), []failpoint.Name{
		failpoint.ScoresAdded + ":70", failpoint.ShardCreated, failpoint.ShardWritten, failpoint.ShardSynced, failpoint.ShardVerified, failpoint.ShardRenamed,
		failpoint.CommitWritten, failpoint.CommitLinked, failpoint.CommitSynced,
		failpoint.CommitWritten + ":2", failpoint.CommitLinked + ":2", failpoint.CommitSynced + ":2", // the sealed entry
	})
	for _, step := range steps {
		life := func(step failpoint.Name) *process {
			return startProgram(t, bin, []string{"ROLLOUT_FAILPOINT=" + string(step)}, rescore...)
		}
		life(step).ends(t, time.Minute, -1)
		if step == failpoint.CommitLinked+":2" || step == failpoint.CommitSynced+":2" {
			if got := rewardsOf(t, dir); !maps.Equal(got, want) {
				t.Fatalf("%s: the sealed set is not used", step)
			}
		} else if got := rewardsOf(t, dir); !maps.Equal(got, before) {
			t.Fatalf("%s: a set that is not complete is used", step)
		}
		namedSet(t, dir)
		life(step).wait(t, time.Minute) // again at this step, if the command still reaches it
		p := life("")
		p.ends(t, time.Minute, exit.OK)
		sets := must(sink.ScoreSets(nil, dir))(t)
		name := sets[len(sets)-1] // the command starts another set if the killed one is complete
		if got := rewardsOf(t, dir); !maps.Equal(got, want) {
			t.Fatalf("%s: rewards differ", step)
		}
		if again := setShards(t, dir, name); !slices.Equal(again, shards) {
			t.Errorf("%s: set %s has shards %q, want %q\n%s", step, name, again, shards, p.said())
		}
		if left := must(filepath.Glob(filepath.Join(dir, "scores", name, "*", ".tmp-*")))(t); left != nil {
			t.Errorf("%s: leftovers %q", step, left)
		}
		mustRun(t, exit.OK, "verify", dir)
		if got := namedSet(t, dir); got != name {
			t.Errorf("%s: the card names the set %q, want %q", step, got, name)
		}
		forget()
	}
}

// An interrupt commits the samples that are scored. The same command scores only the others, and another scorer starts a
// set of its own.
func TestRescoreInterrupted(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 20, "--samples", "2", "--tokenizer", lettasim.ModelName, "--quiet", "--preflight", "connect")
	mustRun(t, exit.OK, args...)
	seen := filepath.Join(t.TempDir(), "seen")
	script := writeFile(t, "score.sh", []byte(`n=0
while read -r line; do
  n=$((n + 1))
  case $line in
  *'"trial":true'*) echo '{"reward": 1}' ;;
  *) echo x >>`+seen+`; test -e `+seen+`.go || test $n -lt 12 || while ! test -e `+seen+`.go; do sleep 0.05; done; echo '{"reward": 0.25}' ;;
  esac
done
`))
	config := writeFile(t, "reward.yaml", []byte("reward: {kind: command, command: [sh, "+script+"]}\n"))
	rescore := []string{"rescore", dir, "-c", config}
	p := startProgram(t, "rollout", nil, rescore...)
	waitFor(t, "the scorer", func() bool { b, _ := os.ReadFile(seen); return len(b) >= 22 || !p.alive() })
	if busy := mustRun(t, exit.Locked, rescore...); !strings.HasSuffix(busy.stderr, "hint: wait until that process ends\n") {
		t.Errorf("two rescores at once: %s", busy.stderr)
	}
	mustRun(t, exit.Locked, append(args, "--resume")...)
	p.signal(t, os.Interrupt, "")
	p.ends(t, time.Minute, exit.Interrupted)
	if !strings.Contains(p.said(), "the same command continues") || must(sink.ReadScores(nil, dir, "", ""))(t) != nil {
		t.Fatalf("interrupted: %s", p.said())
	}
	if err := os.WriteFile(seen+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := mustRun(t, exit.OK, rescore...)
	for _, text := range []string{"continuing scores set 0001", "scores set 0001 of " + dir + ": 40 samples: 40 scored, mean reward 0.25", "; 10 by an earlier process)"} {
		if !strings.Contains(again.stderr, text) {
			t.Errorf("no %q in %s", text, again.stderr)
		}
	}
	for key, reward := range rewardsOf(t, dir) {
		if reward != "0.25" {
			t.Errorf("%s has the reward %s", key, reward)
		}
	}
	// A changed script is another scorer: its scores do not mix with the scores of an interrupted set.
	if err := os.Remove(seen + ".go"); err != nil {
		t.Fatal(err)
	}
	p = startProgram(t, "rollout", nil, rescore...)
	b := must(os.ReadFile(seen))(t)
	waitFor(t, "the scorer", func() bool { now, _ := os.ReadFile(seen); return len(now) >= len(b)+22 || !p.alive() })
	p.signal(t, os.Interrupt, "")
	p.ends(t, time.Minute, exit.Interrupted)
	text := strings.ReplaceAll(string(must(os.ReadFile(script))(t)), "0.25", "0.5")
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(seen+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := mustRun(t, exit.OK, rescore...)
	for _, text := range []string{"removed scores set 0002: it was not complete", "scores set 0002 of " + dir + ": 40 samples: 40 scored, mean reward 0.5"} {
		if !strings.Contains(other.stderr, text) {
			t.Errorf("no %q in %s", text, other.stderr)
		}
	}
}

// A scorer gets the same fields as at collection: of forks, of samples with tool calls, and of samples that the token
// limit cut. The conversation has the same bytes if the rows store
// it. Otherwise it comes from the tokens, and has the same roles, texts and calls.
func TestRescoreSeesTheSame(t *testing.T) {
	t.Parallel()
	script := killScript()
	script.Drift, script.Length = 0.4, 0.2
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: script})
	score := writeFile(t, "score.sh", []byte(`while read -r line; do printf '{"reward": 1, "details": %s}\n' "$(printf '%s' "$line" | sed 's/^{"id":[0-9]*,/{/')"; done`+"\n"))
	for _, messages := range []bool{true, false} {
		cfg := writeFile(t, "reward.yaml", fmt.Appendf(nil, "reward: {kind: command, command: [sh, %s]}\noutput: {messages: %t}\n", score, messages))
		dir, args := collectArgs(t, sim, serveSim(t, sim), 60, "--samples", "2", "--tokenizer", lettasim.ModelName, "-c", cfg, "--quiet", "--preflight", "connect")
		mustRun(t, exit.OK, args...)
		mustRun(t, exit.OK, "rescore", dir)
		log := must(sink.ReadLog(dir))(t)
		given := map[string]map[string]any{}
		forks, cut := 0, 0
		for s := range log.Shards(sink.KindData) {
			for r := range each(t, log.Rows(s)) {
				given[r.SampleKey] = decoded(t, *r.RewardDetails)
				if r.SegmentCount > 1 {
					forks++
				}
				if r.Truncated {
					cut++
				}
			}
		}
		if forks < 10 || cut < 5 {
			t.Fatalf("%d rows of forks and %d rows that were cut: the test shows little", forks, cut)
		}
		log.UseScores(must(sink.ReadScores(nil, dir, "", ""))(t))
		for s := range log.Shards(sink.KindData) {
			for r := range each(t, log.Rows(s)) {
				was, now := maps.Clone(given[r.SampleKey]), decoded(t, *r.RewardDetails)
				if !messages { // the server has other names for the members, and does not return its own system message
					was["conversation"], now["conversation"] = conversationOf(t, was["conversation"]), conversationOf(t, now["conversation"])
				}
				for _, name := range []string{"output", "text", "reasoning"} { // an engine's text can begin or end with space
					was[name], now[name] = strings.TrimSpace(was[name].(string)), strings.TrimSpace(now[name].(string))
				}
				if a, b := fmt.Sprint(was), fmt.Sprint(now); a != b {
					t.Errorf("sample %s: the scorer got\n%s\nand now gets\n%s", r.SampleKey, a, b)
				}
			}
		}
	}
}

// conversationOf returns the roles, the texts and the calls of a conversation without its system message.
func conversationOf(t *testing.T, conversation any) (all []string) {
	t.Helper()
	text := string(must(json.Marshal(conversation))(t))
	messages, err := decode.Stored(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, m := range messages {
		if m.Role == decode.System {
			continue
		}
		line := m.Role
		switch {
		case m.Role == decode.Tool: // the server adds a status and the time
			var result struct{ Message string }
			if json.Unmarshal([]byte(m.Content), &result) == nil {
				m.Content = result.Message
			}
			line += ": " + m.Content
		case len(m.Calls) == 0: // the server drops text before a call
			line += ": " + strings.TrimSpace(m.Content)
		}
		for _, c := range m.Calls {
			line += fmt.Sprintf(" %s(%s)", c.Name, c.Arguments)
		}
		all = append(all, line)
	}
	return all
}

func decoded(t *testing.T, text string) (fields map[string]any) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(text), &fields))
	return fields
}

// A rescore with a scorer of groups is killed between two groups, and the same command continues with whole groups.
func TestRescoreGroupsKilled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	bin := failpointProgram(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 20, "--samples", "4", "--tokenizer", lettasim.ModelName, "--quiet", "--preflight", "connect")
	mustRun(t, exit.OK, args...)
	function := writeFile(t, "rank.py", []byte("def rank(samples):\n    return [{'reward': i / len(samples), 'of': len(samples)} for i, s in enumerate(samples)]\n"))
	rescore := []string{"rescore", dir, "--reward", "python-group:" + function + ":rank"}
	mustRun(t, exit.OK, rescore...)
	want, shards := rewardsOf(t, dir), setShards(t, dir, "0001")
	for key, reward := range want {
		if index := key[strings.LastIndexByte(key, '-')+1:]; reward != map[string]string{"0": "0", "1": "0.25", "2": "0.5", "3": "0.75"}[index] {
			t.Errorf("%s has the reward %s", key, reward)
		}
	}
	if len(want) < 60 {
		t.Fatalf("%d samples have rows", len(want))
	}
	for _, step := range []failpoint.Name{failpoint.ScoresAdded + ":30", failpoint.ShardVerified, failpoint.CommitLinked, failpoint.CommitWritten + ":2"} {
		noError(t, os.RemoveAll(filepath.Join(dir, "scores")))
		startProgram(t, bin, []string{"ROLLOUT_FAILPOINT=" + string(step)}, rescore...).ends(t, time.Minute, -1)
		mustRun(t, exit.OK, rescore...)
		if got := rewardsOf(t, dir); !maps.Equal(got, want) {
			t.Errorf("%s: rewards differ", step)
		}
		if again := setShards(t, dir, "0001"); !slices.Equal(again, shards) {
			t.Errorf("%s: shards %q, want %q", step, again, shards)
		}
	}
}

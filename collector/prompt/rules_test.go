package prompt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rules lists the rules that turn a rollout into rows, and the proof of each: a vector of
// testdata/align, or a test as folder:name. It is in this package because only this package uses
// all of them.
var rules = []struct {
	name, says string
	shown      []string
}{
	{"R1", "sampled ids are output_ids as they are", []string{"tokenize:TestPinned", "tokenize:TestAlignRecorded", "collector/prompt:TestRecordedSamples"}},
	{"R2", "the mask follows what was sampled, never a role", []string{"assistant-in-prompt", "tokenize:TestPinned", "collector/prompt:TestCheckRowNotices"}},
	{"R3", "one log-probability per id, of that id; a surplus is cut where it is certain", []string{"id-mismatch", "too-few-logprobs", "surplus-logprobs", "surplus-of-another", "collector/prompt:TestMutatedTokens"}},
	{"R4", "a value that is missing, not finite or positive unscores its token", []string{"null-logprob", "sliding-logprobs", "tokenize:TestPinnedNothingInvented"}},
	{"R5", "masked positions hold 0.0", []string{"tokenize:TestRowCheck", "tokenize:TestPinnedNothingInvented"}},
	{"R6", "context between outputs is the template's, with the calls that were there", []string{"collector/prompt:TestRecordedPrompts", "collector/prompt:TestRecipes"}},
	{"R7", "consecutive results are one group", []string{"collector/prompt:TestParallelResultsAreOneGroup"}},
	{"R8", "context is proven token by token, and encoded in one pass", []string{"collector/prompt:TestRecordedPrompts", "tokenize/bpe:TestMarked"}},
	{"R9", "a row ends at the last sampled token", []string{"clean-three-calls", "tokenize:TestPinnedEnd"}},
	{"R10", "the separator behind a sampled end is context", []string{"collector/prompt:TestMissingNewline"}},
	{"R11", "the end that a truncated output lacks is context", []string{"length-stop-then-call", "length-stop-compacted", "collector/prompt:TestTruncatedTurnIsClosed", "collector/prompt:TestRecordedLengthStopThenCall"}},
	{"R12", "a sampled role marker is trained and stands once", []string{"role-marker", "collector/prompt:TestRoleMarkerStop"}},
	{"R13", "the first prompt is the server's or is counted", []string{"reply-with-input-ids", "no-prompt", "collector/prompt:TestReasons", "collector/prompt:TestMutations"}},
	{"R14", "a prompt that continues the row extends it, any other forks; realign where asked", []string{"clean-three-calls", "drift-prompt-head", "drift-context", "drift-two-back", "drift-last-threshold", "drift-last-beyond-threshold", "drift-reject", "proper-prefix", "proper-prefix-earlier", "tokenize:TestChains"}},
	{"R15", "another count than the server's is never data", []string{"count-mismatch", "collector/prompt:TestMutations", "collector/prompt:TestReasons"}},
	{"R16", "siblings are numbered, and each token is trained once", []string{"two-leaves", "tinker", "tokenize:TestChains"}},
	{"R17", "a break has a kind and an offset", []string{"drift-context", "lost-between", "tokenize:TestWords"}},
	{"R18", "a hole is never read as what a tool said", []string{"hole-by-completion", "hole-by-steps", "lost-between", "collector/prompt:TestReasons"}},
	{"R19", "rows are cut between calls, at their end, and say so", []string{"cut-at-turn", "cut-first", "cut-then-fork"}},
	{"R20", "ends have their own words", []string{"length-stop", "collector:TestStopReasons"}},
	{"R21", "rows without a trainable token are counted and left out", []string{"empty-rows", "empty-output", "collector:TestSampleWithoutTrainableTokensIsCommitted"}},
	{"R22", "versions belong to sampled tokens", []string{"versions", "collector/prompt:TestTraceTellsTheEnd"}},
	{"R23", "sampling parameters are those in force", []string{"collector/agent:TestRunRecorded"}},
	{"R24", "finish reasons and steps are carried per call", []string{"length-stop", "collector/prompt:TestTraceTellsTheEnd", "collector/prompt:TestRecordedSamples"}},
	{"R25", "a reward that is null is not zero", []string{"collector:TestRewards"}},
}

// TestEveryRuleIsShown fails if a rule has no proof, or if a proof does not exist.
func TestEveryRuleIsShown(t *testing.T) {
	t.Parallel()
	tests := map[string]string{} // their source, by folder
	for i, rule := range rules {
		if want := fmt.Sprintf("R%d", i+1); rule.name != want || rule.says == "" || len(rule.shown) == 0 {
			t.Errorf("%s: want %s, the rule, and the tests that prove it", rule.name, want)
		}
		for _, where := range rule.shown {
			folder, name, isTest := strings.Cut(where, ":")
			if !isTest {
				if _, err := os.Stat(filepath.Join(testdata, "align", where+".txtar")); err != nil {
					t.Errorf("%s: %v", rule.name, err)
				}
				continue
			}
			if tests[folder] == "" {
				tests[folder] = testsOf(t, folder)
			}
			if !strings.Contains(tests[folder], "\nfunc "+name+"(t *testing.T) {\n") {
				t.Errorf("%s: %s has no %s", rule.name, folder, name)
			}
		}
	}
	if len(rules) != 25 {
		t.Errorf("%d rules, want 25", len(rules))
	}
}

func testsOf(t *testing.T, folder string) (source string) {
	t.Helper()
	for _, file := range must(os.ReadDir(filepath.Join("../..", folder)))(t) {
		if strings.HasSuffix(file.Name(), "_test.go") {
			source += string(must(os.ReadFile(filepath.Join("../..", folder, file.Name())))(t))
		}
	}
	return source
}

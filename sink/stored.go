package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file converts between a tokenize.Sample and the rows of shards.

// rowMemory contains values that a StoredRow points to but that are not part of the sample.
type rowMemory struct {
	flags    []string
	versions Range
	parent   tokenize.Parent
}

// set sets r to row i of the sample. Afterwards, r shares memory with s and mem.
func (r *StoredRow) set(s *tokenize.Sample, i int, mem *rowMemory) {
	row := &s.Rows[i]
	mem.flags = row.Flags.AppendNames(mem.flags[:0])
	var divergence *string
	if row.Divergence != nil || len(row.Realigned) > 0 {
		divergence = new(string(row.AppendDivergence(nil)))
	}
	*r = StoredRow{
		SampleKey: s.Key, TaskID: s.TaskID, GroupID: s.GroupID, RolloutID: s.RolloutID,
		SampleIndex: s.Index, GroupSize: s.GroupSize, Attempt: s.Attempt,
		SegmentIndex: row.SegmentIndex, SegmentCount: row.SegmentCount,
		Chain: row.Chain, ChainKind: row.ChainKind.String(),

		InputIDs: row.InputIDs, LossMask: row.LossMask, Logprobs: row.Logprobs, Versions: row.Versions,
		WeightVersions: row.WeightVersions, WeightVersionEnds: row.WeightVersionEnds, RoutedExperts: row.Experts.IDs,
		SamplingMask: row.SamplingMask, SamplingMaskLengths: row.MaskLengths,
		TurnOffsets: row.TurnOffsets, TurnRoles: row.TurnRoles, PromptLength: row.PromptLength,

		Reward: s.Reward, RewardDetails: s.RewardDetails, Status: s.Status, StopReason: s.StopReason,
		FinishReasons: row.FinishReasons, Truncated: row.Truncated,
		Verification: row.Grade.String(), PromptSource: row.Source.String(),
		Divergence: divergence, Flags: mem.flags, Unscored: row.Unscored, Trimmed: row.Trimmed,

		Temperature: s.Sampling.Temperature, TopP: s.Sampling.TopP,
		TopK: s.Sampling.TopK, MaxNewTokens: s.Sampling.MaxNewTokens,

		Model: s.Model, AgentID: s.AgentID, RunIDs: s.RunIDs, StepIDs: row.StepIDs,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, Steps: s.Steps,
		StartedAt: s.StartedAt.UnixMicro(), DurationMS: s.Duration.Milliseconds(), WorkingMS: s.Working.Milliseconds(),
		Messages: s.Messages, Metadata: s.Metadata,
	}
	if mem.parent = row.Parent; row.Parent != (tokenize.Parent{}) {
		r.ParentChain, r.ParentStep = &mem.parent.Chain, &mem.parent.Step
	}
	if versions, ok := policyVersions(row); ok {
		mem.versions = versions
		r.PolicyVersionMin, r.PolicyVersionMax = &mem.versions.Min, &mem.versions.Max
	}
}

// policyVersions returns the lowest and highest version of any sampled token in a row. The result
// ok is false if any of these versions is unknown or if no token was sampled.
func policyVersions(r *tokenize.Row) (span Range, ok bool) {
	if r.Versions == nil {
		return span, false
	}
	for k, role := range r.TurnRoles {
		if tokenize.Role(role) != tokenize.RoleAssistant {
			continue
		}
		for _, v := range r.Versions[r.TurnOffsets[k]:r.TurnOffsets[k+1]] {
			switch {
			case v < 0:
				return Range{}, false
			case !ok:
				span, ok = Range{Min: v, Max: v}, true
			default:
				span.Min, span.Max = min(span.Min, v), max(span.Max, v)
			}
		}
	}
	return span, ok
}

// set sets f to failure i of the sample. Afterwards, f shares memory with s.
func (f *StoredFailure) set(s *tokenize.Sample, i int) {
	fail := &s.Failures[i]
	*f = StoredFailure{
		SampleKey: s.Key, TaskID: s.TaskID, GroupID: s.GroupID, RolloutID: s.RolloutID,
		SampleIndex: s.Index, GroupSize: s.GroupSize, Attempt: s.Attempt,

		Class: fail.Class, Stage: fail.Stage, Reason: fail.Reason,
		Error: validText(fail.Error), Call: fail.Call,
		OutputIDs: fail.OutputIDs, Logprobs: fail.Logprobs, Text: validText(fail.Text),

		Status: s.Status, StopReason: s.StopReason, Model: s.Model, AgentID: s.AgentID, RunIDs: s.RunIDs,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, Steps: s.Steps,
		StartedAt: s.StartedAt.UnixMicro(), DurationMS: s.Duration.Milliseconds(), WorkingMS: s.Working.Milliseconds(),
		Messages: s.Messages, Metadata: s.Metadata,
	}
}

// validText replaces invalid UTF-8 in s, because a text column must be UTF-8. Use validText only
// for text that people read.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// tokens returns the fields that make up a tokenize.Row. It is the inverse of set for these
// fields. The result shares its slices with r. The argument is the shape of the routed experts in the
// shard.
func (r *StoredRow) tokens(experts tokenize.ExpertShape) (tokenize.Row, error) {
	row := tokenize.Row{
		InputIDs: r.InputIDs, LossMask: r.LossMask, Logprobs: r.Logprobs, Versions: r.Versions,
		WeightVersions: r.WeightVersions, WeightVersionEnds: r.WeightVersionEnds, SamplingMask: r.SamplingMask, MaskLengths: r.SamplingMaskLengths,
		TurnOffsets: r.TurnOffsets, TurnRoles: r.TurnRoles, PromptLength: r.PromptLength,
		Chain: r.Chain, SegmentIndex: r.SegmentIndex, SegmentCount: r.SegmentCount,
		Unscored: r.Unscored, Trimmed: r.Trimmed, Truncated: r.Truncated,
		FinishReasons: r.FinishReasons, StepIDs: r.StepIDs, LastCall: int32(len(r.FinishReasons)),
	}
	if r.RoutedExperts != nil && experts == (tokenize.ExpertShape{}) {
		return row, fmt.Errorf("the row has routed_experts, but the metadata has no %s with their shape", metaExperts)
	}
	if r.RoutedExperts != nil {
		row.Experts = tokenize.Experts{Shape: experts, IDs: r.RoutedExperts}
	}
	err := errors.Join(
		row.ChainKind.UnmarshalText([]byte(r.ChainKind)),
		row.Grade.UnmarshalText([]byte(r.Verification)),
		row.Source.UnmarshalText([]byte(r.PromptSource)),
		row.Flags.UnmarshalText([]byte(strings.Join(r.Flags, ","))),
		r.parent(&row),
		r.realigned(&row),
	)
	return row, err
}

// parent sets row.Parent.
func (r *StoredRow) parent(row *tokenize.Row) error {
	switch {
	case r.ParentChain == nil && r.ParentStep == nil:
		return nil
	case r.ParentChain == nil || r.ParentStep == nil:
		return errors.New("only one of parent_chain and parent_step is null")
	}
	row.Parent = tokenize.Parent{Chain: *r.ParentChain, Step: *r.ParentStep}
	if *r.ParentStep < 1 {
		return fmt.Errorf("parent_step is %d, but must be ≥ 1", *r.ParentStep)
	}
	return nil
}

// realigned decodes the divergence column and sets row.Realigned. It returns an error if any part
// of the column cannot be decoded.
func (r *StoredRow) realigned(row *tokenize.Row) error {
	if r.Divergence == nil {
		return nil
	}
	if err := isJSON("divergence", r.Divergence); err != nil {
		return err
	}
	var d struct {
		tokenize.Divergence
		Realigned []tokenize.Divergence
	}
	if err := json.Unmarshal([]byte(*r.Divergence), &d); err != nil {
		return fmt.Errorf("divergence: %w", err)
	}
	row.Realigned = d.Realigned
	return nil
}

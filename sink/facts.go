package sink

import (
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
)

// A factsRow holds the columns of a StoredRow that say something about it as a
// whole: none with an entry per token, and no long text.
type factsRow struct {
	SampleKey        string   `parquet:"sample_key"`
	TaskID           string   `parquet:"task_id"`
	GroupID          string   `parquet:"group_id"`
	SampleIndex      int32    `parquet:"sample_index"`
	GroupSize        int32    `parquet:"group_size"`
	Attempt          int32    `parquet:"attempt"`
	SegmentIndex     int32    `parquet:"segment_index"`
	SegmentCount     int32    `parquet:"segment_count"`
	TurnOffsets      []int32  `parquet:"turn_offsets,list" parquet-element:",delta"`
	PromptLength     int32    `parquet:"prompt_length"`
	Reward           *float64 `parquet:"reward,optional"`
	Status           string   `parquet:"status,dict"`
	StopReason       string   `parquet:"stop_reason,dict"`
	Truncated        bool     `parquet:"truncated"`
	Verification     string   `parquet:"verification,dict"`
	PromptSource     string   `parquet:"prompt_source,dict"`
	Flags            []string `parquet:"flags,list" parquet-element:",dict"`
	Unscored         int32    `parquet:"n_unscored"`
	Trimmed          int32    `parquet:"n_trimmed"`
	AgentID          string   `parquet:"agent_id"`
	PromptTokens     int64    `parquet:"prompt_tokens"`
	CompletionTokens int64    `parquet:"completion_tokens"`
	Steps            int32    `parquet:"steps"`
	StartedAt        int64    `parquet:"started_at,timestamp(microsecond:utc)"`
	DurationMS       int64    `parquet:"duration_ms"`
	WorkingMS        int64    `parquet:"working_ms"`
}

// A factsFailure holds the same of a StoredFailure.
type factsFailure struct {
	SampleKey        string `parquet:"sample_key"`
	TaskID           string `parquet:"task_id"`
	GroupID          string `parquet:"group_id"`
	SampleIndex      int32  `parquet:"sample_index"`
	GroupSize        int32  `parquet:"group_size"`
	Attempt          int32  `parquet:"attempt"`
	Class            string `parquet:"class,dict"`
	Stage            string `parquet:"stage,dict"`
	Reason           string `parquet:"reason,dict"`
	Error            string `parquet:"error"`
	Call             int32  `parquet:"call"`
	Status           string `parquet:"status,dict"`
	StopReason       string `parquet:"stop_reason,dict"`
	AgentID          string `parquet:"agent_id"`
	PromptTokens     int64  `parquet:"prompt_tokens"`
	CompletionTokens int64  `parquet:"completion_tokens"`
	Steps            int32  `parquet:"steps"`
	StartedAt        int64  `parquet:"started_at,timestamp(microsecond:utc)"`
	DurationMS       int64  `parquet:"duration_ms"`
	WorkingMS        int64  `parquet:"working_ms"`
}

// Facts is Rows without what is large: InputIDs, LossMask, Logprobs, Versions,
// TurnRoles, FinishReasons, RewardDetails, Divergence, Messages, Metadata and the
// ids of runs and steps are empty, and of a Parquet shard they are not even read.
// The last of TurnOffsets is T. A row is valid until the next one.
func (l *Log) Facts(s Shard) iter.Seq2[*StoredRow, error] {
	return facts(l, s, KindData, func(f *factsRow, row *StoredRow) {
		*row = StoredRow{
			SampleKey: f.SampleKey, TaskID: f.TaskID, GroupID: f.GroupID,
			SampleIndex: f.SampleIndex, GroupSize: f.GroupSize, Attempt: f.Attempt,
			SegmentIndex: f.SegmentIndex, SegmentCount: f.SegmentCount,
			TurnOffsets: f.TurnOffsets, PromptLength: f.PromptLength, Reward: f.Reward,
			Status: f.Status, StopReason: f.StopReason, Truncated: f.Truncated,
			Verification: f.Verification, PromptSource: f.PromptSource, Flags: f.Flags, Unscored: f.Unscored, Trimmed: f.Trimmed,
			AgentID: f.AgentID, PromptTokens: f.PromptTokens, CompletionTokens: f.CompletionTokens, Steps: f.Steps,
			StartedAt: f.StartedAt, DurationMS: f.DurationMS, WorkingMS: f.WorkingMS,
		}
	})
}

// FailureFacts is Facts for a shard of failures: OutputIDs, Logprobs, Text, RunIDs,
// Model, Messages and Metadata are empty.
func (l *Log) FailureFacts(s Shard) iter.Seq2[*StoredFailure, error] {
	return facts(l, s, KindFailures, func(f *factsFailure, row *StoredFailure) {
		*row = StoredFailure{
			SampleKey: f.SampleKey, TaskID: f.TaskID, GroupID: f.GroupID,
			SampleIndex: f.SampleIndex, GroupSize: f.GroupSize, Attempt: f.Attempt,
			Class: f.Class, Stage: f.Stage, Reason: f.Reason, Error: f.Error, Call: f.Call,
			Status: f.Status, StopReason: f.StopReason, AgentID: f.AgentID,
			PromptTokens: f.PromptTokens, CompletionTokens: f.CompletionTokens, Steps: f.Steps,
			StartedAt: f.StartedAt, DurationMS: f.DurationMS, WorkingMS: f.WorkingMS,
		}
	})
}

// facts yields the rows T of a shard, read as F where the format lets columns be
// left out.
func facts[F, T any](l *Log, s Shard, kind Kind, fill func(*F, *T)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		var err error
		if s.Kind == kind && s.Format == Parquet {
			err = l.parquetFacts(s, func(f File) error { return readFacts(f, s, fill, func(row *T) bool { return yield(row, nil) }) })
		} else {
			// An Arrow stream has no way around its columns.
			err = readShard(l, s, kind, func(row *T, err error) bool {
				if row, ok := any(row).(*StoredRow); ok {
					keepFacts(row)
				}
				return yield(row, err)
			})
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// keepFacts drops what a factsRow does not hold.
func keepFacts(r *StoredRow) {
	r.RolloutID, r.InputIDs, r.LossMask, r.Logprobs, r.Versions, r.TurnRoles = "", nil, nil, nil, nil, nil
	r.FinishReasons, r.RewardDetails, r.Divergence, r.Messages, r.Metadata = nil, nil, nil, nil, nil
	r.Temperature, r.TopP, r.TopK, r.MaxNewTokens, r.Model, r.RunIDs, r.StepIDs = nil, nil, nil, nil, "", nil, nil
}

// parquetFacts opens a shard whose digest is right.
func (l *Log) parquetFacts(s Shard, read func(File) error) error {
	corrupt := func(err error) error { return &CorruptError{Path: s.Path, Row: -1, Err: err} }
	f, err := l.openChecked(s)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }() // it was read only
	if err := read(f); err != nil {
		return corrupt(err)
	}
	return nil
}

func readFacts[F, T any](f File, s Shard, fill func(*F, *T), yield func(*T) bool) (err error) {
	pf, err := openParquet[T](f, s.Bytes, s.Rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	var n int64
	for _, group := range pf.RowGroups() {
		k, more, err := groupFacts(group, fill, func(row *T) bool {
			yielding = true
			more := yield(row)
			yielding = false
			return more
		})
		if n += k; err != nil || !more {
			return err
		}
	}
	if n != s.Rows {
		return fmt.Errorf("%d rows, want %d", n, s.Rows)
	}
	return nil
}

// groupFacts is readFacts for one row group. It returns the number of rows, and
// whether more are wanted.
func groupFacts[F, T any](group parquet.RowGroup, fill func(*F, *T), yield func(*T) bool) (n int64, more bool, err error) {
	r := parquet.NewGenericRowGroupReader[F](group)
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	batch := make([]F, 64)
	var row T
	for {
		k, err := r.Read(batch)
		for i := range k {
			n++
			fill(&batch[i], &row)
			if !yield(&row) {
				return n, false, nil
			}
		}
		clear(batch[:k])
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
}

package sink

import (
	"maps"
	"reflect"
	"strconv"
)

// SchemaVersion is the version of the columns of StoredRow and StoredFailure. A later
// version only adds columns, at the end and nullable: version 2 added the last four of
// StoredRow. Shards of version 1 are still read, and those columns are nil there. A
// reader refuses shards of a version that it does not know.
const SchemaVersion = 2

// The key-values that the package itself writes into each shard.
const (
	metaSchemaVersion = "rollout.schema_version"
	metaRunID         = "rollout.run_id"
	metaKind          = "rollout.kind"
)

// shardMeta are the key-values of shards, by kind.
type shardMeta [1 + KindFailures]map[string]string

// metaOf returns the key-values of shards that have those of a Config besides their own.
func (d *Dataset) metaOf(config map[string]string) *shardMeta {
	var all shardMeta
	for kind := range all {
		all[kind] = map[string]string{
			metaSchemaVersion: strconv.Itoa(SchemaVersion),
			metaRunID:         d.cfg.RunID,
			metaKind:          Kind(kind).String(),
		}
		maps.Copy(all[kind], config)
	}
	return &all
}

// A StoredRow is one row of a data shard: a training sequence of T tokens in K
// spans with the facts of its sample. Its fields, in order, are the columns of
// schema version 2; the tag since names the version that added one. The tag read names the
// readers that take only some columns and this one among them: facts is [Log.Facts], rules
// is [Verify], heads is [Log.Heads]. The tag parquet is the only place that says how a column is encoded in
// Parquet:
//
//   - the schema of the file must be the one of this struct, else parquet-go
//     falls back to reflection and is six times slower, without a word;
//   - every nullable scalar is a pointer: on plain values `optional` writes wrong
//     nulls;
//   - no codec in a tag: it would mean the codec's slow default level;
//   - no dict on token lists: the fast reader takes their pages as they are;
//   - int8 lists are written with delta, ids plain, logprobs split by byte: the
//     smallest for each.
type StoredRow struct {
	// SampleKey is the identity for exactly-once: the digest of the task and
	// SampleIndex.
	SampleKey string `parquet:"sample_key" read:"heads,facts,rules"`
	TaskID    string `parquet:"task_id" read:"heads,facts"`
	GroupID   string `parquet:"group_id" read:"heads,facts,rules"`
	// RolloutID is shared by the rows of a sample.
	RolloutID   string `parquet:"rollout_id" read:"rules"`
	SampleIndex int32  `parquet:"sample_index" read:"heads,facts,rules"`
	GroupSize   int32  `parquet:"group_size" read:"facts,rules"`
	Attempt     int32  `parquet:"attempt" read:"facts,rules"`
	// SegmentIndex of SegmentCount is the row's place among the rows of its sample.
	SegmentIndex int32 `parquet:"segment_index" read:"heads,facts,rules"`
	SegmentCount int32 `parquet:"segment_count" read:"heads,facts,rules"`

	// InputIDs, LossMask and Logprobs have length T. See tokenize.Row.
	InputIDs []int32   `parquet:"input_ids,list"`
	LossMask []int8    `parquet:"loss_mask,list" parquet-element:",delta"`
	Logprobs []float32 `parquet:"logprobs,list" parquet-element:",split"`
	// Versions has length T, or is nil: unknown. See tokenize.Row for -1.
	Versions []int32 `parquet:"versions,list,optional"`
	// TurnOffsets has length K+1, TurnRoles length K.
	TurnOffsets []int32 `parquet:"turn_offsets,list" parquet-element:",delta" read:"heads,facts,rules"`
	TurnRoles   []int8  `parquet:"turn_roles,list" read:"heads,rules"`
	// PromptLength is the number of tokens before the first sampled one.
	PromptLength int32 `parquet:"prompt_length" read:"facts,rules"`

	// Reward is finite, or nil where the sample was not scored.
	Reward        *float64 `parquet:"reward,optional" read:"heads,facts,rules"`
	RewardDetails *string  `parquet:"reward_details,optional" read:"rules"` // JSON
	Status        string   `parquet:"status,dict" read:"heads,facts,rules"`
	StopReason    string   `parquet:"stop_reason,dict" read:"facts"`
	// FinishReasons has one entry per call of the row: stop, length, or another word of
	// the engine; empty where unknown. A call that ended with abort is in no row.
	FinishReasons []string `parquet:"finish_reasons,list" parquet-element:",dict" read:"rules"`
	// Truncated is true where Flags holds cut or length, and nowhere else. See "How a
	// row ends" of the package.
	Truncated    bool   `parquet:"truncated" read:"facts,rules"`
	Verification string `parquet:"verification,dict" read:"heads,facts,rules"`
	PromptSource string `parquet:"prompt_source,dict" read:"heads,facts,rules"`
	// Divergence is a JSON object, as tokenize.Row.AppendDivergence writes it: call,
	// offset, kind, row and prompt say why a row that is a fork is one; realigned
	// lists the same five for each output whose end was replaced. Nil where there is
	// neither, as in most rows.
	Divergence *string  `parquet:"divergence,optional" read:"heads,rules"`
	Flags      []string `parquet:"flags,list" parquet-element:",dict" read:"heads,facts,rules"`
	Unscored   int32    `parquet:"n_unscored" read:"heads,facts,rules"`
	Trimmed    int32    `parquet:"n_trimmed" read:"facts,rules"`

	// The sampling parameters that were in force; nil where unknown.
	Temperature  *float32 `parquet:"temperature,optional"`
	TopP         *float32 `parquet:"top_p,optional"`
	TopK         *int32   `parquet:"top_k,optional"`
	MaxNewTokens *int32   `parquet:"max_new_tokens,optional"`

	Model   string   `parquet:"model,dict"`
	AgentID string   `parquet:"agent_id" read:"facts"`
	RunIDs  []string `parquet:"run_ids,list"`
	// StepIDs has one entry per call of the row, empty where unknown.
	StepIDs []string `parquet:"step_ids,list" read:"rules"`

	// The server's own sums over the sample.
	PromptTokens     int64 `parquet:"prompt_tokens" read:"facts"`
	CompletionTokens int64 `parquet:"completion_tokens" read:"facts,rules"`
	Steps            int32 `parquet:"steps" read:"facts"`

	// StartedAt is in microseconds since 1970, UTC.
	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)" read:"facts"`
	DurationMS int64 `parquet:"duration_ms" read:"facts"`
	// WorkingMS leaves out queueing and backoff.
	WorkingMS int64 `parquet:"working_ms" read:"facts"`

	Messages *string `parquet:"messages,optional" read:"rules"` // JSON
	Metadata *string `parquet:"metadata,optional" read:"rules"` // JSON

	// PolicyVersionMin and PolicyVersionMax span Versions over the sampled tokens, which
	// are those of assistant spans, with a log-probability or without. Both are nil where
	// Versions is nil, or where the version of any sampled token is unknown: what they say
	// holds for the whole row.
	PolicyVersionMin *int32 `parquet:"policy_version_min,optional" since:"2" read:"facts,rules"`
	PolicyVersionMax *int32 `parquet:"policy_version_max,optional" since:"2" read:"facts,rules"`
	// Keep says whether the row is to be trained on, and KeepReason why: what Config.Judge
	// said of the sample. Nil: nothing was decided.
	Keep       *bool   `parquet:"keep,optional" since:"2" read:"heads,facts,rules"`
	KeepReason *string `parquet:"keep_reason,optional" since:"2" read:"heads,facts,rules"`
}

// A StoredFailure is one row of a shard of failures: a sample, or one call of it,
// that must not be trained on. Its fields, in order, are the columns.
type StoredFailure struct {
	SampleKey   string `parquet:"sample_key" read:"heads,facts"`
	TaskID      string `parquet:"task_id" read:"heads,facts"`
	GroupID     string `parquet:"group_id" read:"heads,facts"`
	RolloutID   string `parquet:"rollout_id"`
	SampleIndex int32  `parquet:"sample_index" read:"heads,facts"`
	GroupSize   int32  `parquet:"group_size" read:"facts"`
	Attempt     int32  `parquet:"attempt" read:"heads,facts"`

	// Class, Stage, Reason and Error are those of tokenize.Failure.
	Class  string `parquet:"class,dict" read:"heads,facts"`
	Stage  string `parquet:"stage,dict" read:"heads,facts"`
	Reason string `parquet:"reason,dict" read:"heads,facts"`
	Error  string `parquet:"error" read:"heads,facts"`
	// Call is the index of the call within the sample, or -1: the whole sample.
	Call int32 `parquet:"call" read:"heads,facts"`

	// OutputIDs is what is left of the sampled tokens. Logprobs belongs to it and
	// is NaN where the server gave none: unlike in data, NaN is allowed here. It
	// may differ in length where that is what failed.
	OutputIDs []int32   `parquet:"output_ids,list" read:"heads"`
	Logprobs  []float32 `parquet:"logprobs,list" parquet-element:",split"`
	Text      string    `parquet:"text"`

	Status     string   `parquet:"status,dict" read:"heads,facts"`
	StopReason string   `parquet:"stop_reason,dict" read:"heads,facts"`
	Model      string   `parquet:"model,dict"`
	AgentID    string   `parquet:"agent_id" read:"facts"`
	RunIDs     []string `parquet:"run_ids,list"`

	PromptTokens     int64 `parquet:"prompt_tokens" read:"facts"`
	CompletionTokens int64 `parquet:"completion_tokens" read:"facts"`
	Steps            int32 `parquet:"steps" read:"facts"`

	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)" read:"facts"`
	DurationMS int64 `parquet:"duration_ms" read:"facts"`
	WorkingMS  int64 `parquet:"working_ms" read:"facts"`

	Messages *string `parquet:"messages,optional"` // JSON
	Metadata *string `parquet:"metadata,optional"` // JSON
}

// since is the version of the schema that added the column of a field.
func since(f reflect.StructField) int {
	version, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		return 1
	}
	return version
}

// columnsOf is the number of columns of a version of the schema: the first ones of t.
func columnsOf(t reflect.Type, version int) (n int) {
	for f := range t.Fields() {
		if since(f) <= version {
			n++
		}
	}
	return n
}

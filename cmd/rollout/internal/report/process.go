package report

import "time"

// This file has the parts of a Report about the processes of a run, and about its files.

// Controller describes the concurrency control, as recorded in the logs.
type Controller struct {
	Endpoints []EndpointLimit `json:"endpoints,omitempty"`
	Reasons   map[string]int  `json:"reasons,omitempty"`
	// Changes lists the newest changes. LeftOut counts the older changes that are not listed.
	Changes []LimitChange `json:"changes,omitempty"`
	LeftOut int           `json:"left_out,omitempty"`
	// InFlight contains the number of samples in flight, from the status lines.
	InFlight []Point `json:"in_flight,omitempty"`
}

// EndpointLimit describes the concurrency limit of one endpoint over the run.
type EndpointLimit struct {
	Endpoint string `json:"endpoint"`
	Changes  int    `json:"changes"`
	Cuts     int    `json:"cuts"`
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	Last     int    `json:"last"`
}

// A LimitChange is one change of a limit by the controller.
type LimitChange struct {
	At       time.Time `json:"at"`
	Endpoint string    `json:"endpoint"`
	From     int       `json:"from"`
	To       int       `json:"to"`
	Reason   string    `json:"reason"`
}

// A Point is a value at one point in time.
type Point struct {
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
}

// Retries counts attempts and retries.
type Retries struct {
	// Attempts counts samples by the number of the attempt that counted. It includes samples with
	// rows and failed samples.
	Attempts map[int]int `json:"attempts,omitempty"`
	// Logged is the number of retries in the logs, and WaitSeconds is the total wait before them.
	// Both are nil without logs. ByClass counts these retries by the class of the failure before them.
	// It is nil if there are none.
	ByClass     map[string]int `json:"by_class,omitempty"`
	Logged      *int           `json:"logged,omitempty"`
	WaitSeconds *float64       `json:"wait_seconds,omitempty"`
	// Open counts the attempts without an outcome. Such an attempt is in progress, or its process
	// was killed. Open is nil if there is no journal.
	Open *int `json:"open,omitempty"`
}

// Slow is one of the slowest samples.
type Slow struct {
	Row        int     `json:"row"` // row number as in rollout inspect; -1: the sample failed; -2: the row is not yet in a shard
	SampleKey  string  `json:"sample_key"`
	TaskID     string  `json:"task_id"`
	Index      int     `json:"sample_index"`
	Attempt    int     `json:"attempt"`
	Seconds    float64 `json:"seconds"`
	Working    float64 `json:"working_seconds"`
	Calls      int     `json:"calls"`
	Completion int64   `json:"completion_tokens"`
	Status     string  `json:"status"` // status of the sample, or the class of its failure
	AgentID    string  `json:"agent_id,omitempty"`
}

// Storage describes the files in the run's folder.
type Storage struct {
	Commits       int   `json:"commits"`
	DataShards    int   `json:"data_shards"`
	FailureShards int   `json:"failure_shards"`
	DataBytes     int64 `json:"data_bytes"`
	FailureBytes  int64 `json:"failure_bytes"`
	Tokens        int64 `json:"tokens"`
	Trainable     int64 `json:"trainable_tokens"`
	// WALBytes is the size of wal/, which contains the samples of shards that have not yet been
	// committed. It is nil if the run is not in a folder of its own, or if wal/ cannot be read.
	WALBytes *int64 `json:"wal_bytes,omitempty"`
	// Duplicates counts samples that were delivered twice and dropped. It is nil if the number was
	// not recorded.
	Duplicates *int64 `json:"duplicates_refused,omitempty"`
}

// TailBias compares the kept samples with the samples that the tail policy cut.
type TailBias struct {
	Kept TailSide `json:"kept"`
	Cut  TailSide `json:"cut"`
}

// A TailSide contains the lengths and durations of either the kept or the cut samples.
type TailSide struct {
	Samples    int           `json:"samples"`
	Seconds    *Distribution `json:"seconds,omitempty"`
	Completion *Distribution `json:"completion_tokens,omitempty"`
}

// An Invocation is one collecting process, as described by its log.
type Invocation struct {
	Log     string    `json:"log"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"` // time of the last line in the log
	// Seconds is the time from Started to Ended, excluding clock jumps.
	Seconds float64 `json:"seconds"`
	Resumed bool    `json:"resumed"`
	// Outcome and Exit are empty if the process did not end normally.
	Outcome string `json:"outcome,omitempty"`
	Exit    *int   `json:"exit,omitempty"`
}

// A ClockJump is a discontinuity in the times of a log: the clock was set, or the machine slept.
type ClockJump struct {
	Log string    `json:"log"` // log that contains the line after the jump
	At  time.Time `json:"at"`  // the clock's time after the jump
	// Seconds is the size of the jump. It is negative if the clock jumped back.
	Seconds float64 `json:"seconds"`
}

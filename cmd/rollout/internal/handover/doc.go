// Package handover writes the rows of a run in the formats of other programs, and reads ATIF back.
//
//	format           file                      one entry is   source of the format
//	─────────────────────────────────────────────────────────────────────────────────────────
//	atif             JSON Lines                a row          harbor 0.26, models/trajectories
//	hf-traces        a folder of JSON Lines    a row          Hugging Face Hub, Session Traces Format
//	openai-messages  JSON Lines                a row          OpenAI and TRL conversations
//	slime            a PyTorch file            a row          slime, utils/types.py (Sample)
//	tinker           JSON Lines                a row          tinker 0.38, types/datum.py
//
// Every format treats the special cases of a run in its own way:
//
//	                 failures   no reward     keep=false   several rows of a sample
//	─────────────────────────────────────────────────────────────────────────────────────────
//	atif             left out   null          written      same session_id
//	hf-traces        left out   null          written      one file each
//	openai-messages  left out   null          written      one line each
//	slime            left out   left out      left out     same rollout_id
//	tinker           left out   left out      left out     same advantage
//
// A row that was cut has truncated=true, or the status truncated of slime. Left counts what a format
// leaves out. slime and tinker contain advantages, because they do not compute any: the same ones as
// rollout.to_slime and rollout.to_tinker in the Python package.
//
// All writers keep one row in memory. In addition, slime and tinker keep the statistics of each group's
// rewards, and slime keeps 40 bytes per row and a temporary file, because its groups must be contiguous.
package handover

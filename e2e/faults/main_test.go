package faults

import (
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

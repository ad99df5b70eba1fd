package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
)

func resumeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "job", Usage: "the job, by id"},
		&cli.BoolFlag{Name: "all", Usage: "all parked jobs"},
		jsonFlag(),
	}
}

// parkedCommand lists the jobs that are parked.
func parkedCommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	out := new(core.List[health.ParkedJob])
	if err := runLocal(c, operator.ParkedPath, struct{}{}, out); err != nil {
		return err
	}
	text := fmt.Sprintf("parked jobs  %d\n", out.Count)
	for _, j := range out.Data {
		text += fmt.Sprintf("%s  %s  %s  the server ended %d times; parked until %s\n", j.JobID, j.Type, j.Resource, j.Crashes, j.Until.UTC().Format(time.RFC3339))
	}
	return printResult(c, out, text)
}

// resumeCommand lets parked jobs go on.
func resumeCommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if (c.String("job") == "") == !c.Bool("all") {
		return config.Mistake(errors.New("give --job ID or --all"))
	}
	out := new(health.JobsResumed)
	if err := runLocal(c, operator.ResumePath, health.ResumeJobsIn{Job: c.String("job"), All: c.Bool("all")}, out); err != nil {
		return err
	}
	text := "No job was parked.\n"
	if len(out.Jobs) > 0 {
		text = "These jobs go on: " + strings.Join(out.Jobs, " ") + "\n"
	}
	return printResult(c, out, text)
}

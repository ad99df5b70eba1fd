package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
)

func (p *Program) jobCommands() []*cli.Command {
	return []*cli.Command{
		p.command("parked", "list the jobs that are parked, since the server ended each time that they ran", "", func(c *cli.Context, e *env) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return runListParkedJobs(c.Context, e)
		}, listFlags()...),
		p.command("resume", "let a parked job go on now, or all of them", "[JOB]", func(c *cli.Context, e *env) error {
			if err := argumentAsFlag(c, "job"); err != nil {
				return err
			}
			if c.String("job") == "" && !c.Bool("all") {
				return config.Mistake(errors.New("name the job by its id, which `mailstead job parked` shows, or give --all"))
			}
			if c.String("job") != "" && c.Bool("all") {
				return config.Mistake(errors.New("name a job or give --all, not both"))
			}
			return runResumeJobs(c.Context, e, health.ResumeJobsIn{Job: c.String("job"), All: c.Bool("all")})
		},
			&cli.StringFlag{Name: "job", Usage: "the job, by id"},
			&cli.BoolFlag{Name: "all", Usage: "all parked jobs"},
			jsonFlag()),
	}
}

// runListParkedJobs prints the jobs that are parked because they crashed the server repeatedly.
func runListParkedJobs(ctx context.Context, e *env) error {
	out := new(core.List[health.ParkedJob])
	if err := e.ask(ctx, operator.ParkedPath, struct{}{}, out); err != nil {
		return err
	}
	t := &table{heads: []string{"Job", "Type", "About", "Server ended", "Parked until"}, wide: []int{2}, empty: "No job is parked."}
	for _, j := range out.Data {
		t.add(j.JobID, j.Type, j.Resource, plural(int64(j.Crashes), "time"), j.Until.UTC().Format(time.RFC3339))
	}
	return e.printTable(out, t)
}

// runResumeJobs lets one parked job, or all of them, run again.
func runResumeJobs(ctx context.Context, e *env, in health.ResumeJobsIn) error {
	out := new(health.JobsResumed)
	if err := e.ask(ctx, operator.ResumePath, in, out); err != nil {
		return err
	}
	text := "No job was parked.\n"
	if len(out.Jobs) > 0 {
		text = "These jobs go on: " + strings.Join(out.Jobs, " ") + "\n"
	}
	return e.print(out, text)
}

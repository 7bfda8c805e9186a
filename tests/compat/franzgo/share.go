// A member of a share group that executes the commands on its input, with the commands of java/share_member.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var statuses = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

type shareMember struct {
	client  *kgo.Client
	held    map[string]*kgo.Record
	lock    sync.Mutex
	results map[int32]string
}

// Arguments: bootstrap, group, topic, and optionally the most records of a fetch, which is then a strict limit.
// Each command has one line of output. It leaves when its input ends.
func runShareMember(args []string) {
	m := &shareMember{held: map[string]*kgo.Record{}, results: map[int32]string{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(args[0]), kgo.ShareGroup(args[1]), kgo.ConsumeTopics(args[2]),
		kgo.ShareAckCallback(m.onAcks), kgo.FetchMaxWait(200 * time.Millisecond),
	}
	if len(args) > 3 {
		most, err := strconv.Atoi(args[3])
		must(err)
		options = append(options, kgo.ShareMaxRecords(int32(most)), kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	must(err)
	m.client = client
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		fmt.Println(m.execute(strings.Fields(commands.Text())))
	}
	client.Close()
}

func (m *shareMember) execute(command []string) string {
	switch command[0] {
	case "poll":
		milliseconds, err := strconv.Atoi(command[1])
		must(err)
		return m.poll(time.Duration(milliseconds) * time.Millisecond)
	case "ack":
		for _, place := range command[2:] {
			m.held[place].Ack(statuses[command[1]])
		}
		return "acknowledged"
	case "commit":
		return m.commit()
	}
	panic(command[0])
}

func (m *shareMember) poll(wait time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	line := []string{"got"}
	for len(line) == 1 && ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return "failed " + failed.Err.Error()
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			place := fmt.Sprintf("%d:%d", record.Partition, record.Offset)
			m.held[place] = record
			line = append(line, fmt.Sprintf("%s=%d", place, record.DeliveryCount()))
		})
	}
	return strings.Join(line, " ")
}

// The results of all acknowledgements since the last commit, by partition: ok, or the name of the last error.
func (m *shareMember) commit() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := m.client.FlushAcks(ctx); err != nil {
		return "failed " + err.Error()
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	line := []string{"committed"}
	for partition, result := range m.results {
		line = append(line, fmt.Sprintf("%d=%s", partition, result))
	}
	sort.Strings(line[1:])
	clear(m.results)
	return strings.Join(line, " ")
}

func (m *shareMember) onAcks(_ *kgo.Client, results kgo.ShareAckResults) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, result := range results {
		var refused *kerr.Error
		switch {
		case errors.As(result.Err, &refused):
			m.results[result.Partition] = refused.Message
		case result.Err != nil:
			m.results[result.Partition] = strings.ReplaceAll(result.Err.Error(), " ", "_")
		case m.results[result.Partition] == "":
			m.results[result.Partition] = "ok"
		}
	}
}

// amqp091-go against a broker: `interop CASE PORT NAME`. Ends with 0 if the case holds; what is wrong is printed.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 20 * time.Second

var url, prefix string

func check(condition bool, format string, arguments ...interface{}) {
	if !condition {
		panic(fmt.Sprintf(format, arguments...))
	}
}

func must(err error) {
	check(err == nil, "%v", err)
}

func queues() []string {
	names := make([]string, 4)
	for n := range names {
		names[n] = fmt.Sprintf("%s.%d", prefix, n)
	}
	return names
}

func open(connection *amqp.Connection) *amqp.Channel {
	channel, err := connection.Channel()
	must(err)
	return channel
}

func declare(channel *amqp.Channel, queue string) {
	_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	must(err)
}

func publish(channel *amqp.Channel, queue, body string) *amqp.DeferredConfirmation {
	message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, true, false, message)
	must(err)
	return confirmation
}

func next(deliveries <-chan amqp.Delivery, body string, redelivered bool) amqp.Delivery {
	select {
	case delivery := <-deliveries:
		found := fmt.Sprint(string(delivery.Body), " ", delivery.Redelivered)
		check(found == fmt.Sprint(body, " ", redelivered), "expected %s, found %s", body, found)
		return delivery
	case <-time.After(patience):
		panic("nothing came, expected " + body)
	}
}

func confirms(connection *amqp.Connection) {
	channel := open(connection)
	must(channel.Confirm(false))
	for _, queue := range queues() {
		declare(channel, queue)
		var confirmations []*amqp.DeferredConfirmation
		for n := 0; n < 100; n++ {
			confirmations = append(confirmations, publish(channel, queue, fmt.Sprint(n)))
		}
		for _, confirmation := range confirmations {
			check(confirmation.Wait(), "message %d was refused", confirmation.DeliveryTag)
		}
		count, err := channel.QueueDelete(queue, false, false, false)
		must(err)
		check(count == 100, "there were %d messages", count)
	}
}

func prefetch(connection *amqp.Connection) {
	for _, queue := range queues() {
		channel := open(connection)
		declare(channel, queue)
		must(channel.Qos(3, 0, false))
		for n := 0; n < 5; n++ {
			publish(channel, queue, fmt.Sprint(n))
		}
		deliveries, err := channel.Consume(queue, "tag", false, false, false, false, nil)
		must(err)
		first := next(deliveries, "0", false)
		second := next(deliveries, "1", false)
		next(deliveries, "2", false)
		state, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		must(err)
		check(state.Messages == 2, "%d are left beyond the prefetch", state.Messages)
		must(second.Nack(false, true))
		next(deliveries, "1", true)
		must(first.Reject(false))
		next(deliveries, "3", false)
		must(channel.Ack(0, true))
		last := next(deliveries, "4", false)
		must(last.Ack(false))
		must(channel.Cancel("tag", false))
		count, err := channel.QueueDelete(queue, false, true, false)
		must(err)
		check(count == 0, "%d were left", count)
	}
}

func returns(connection *amqp.Connection) {
	channel := open(connection)
	must(channel.Confirm(false))
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	for _, queue := range queues() {
		check(publish(channel, queue+".missing", "lost").Wait(), "it was refused")
		// The return comes before the confirm.
		select {
		case one := <-returned:
			check(one.ReplyCode == 312 && string(one.Body) == "lost", "returned: %v", one)
		default:
			panic("confirmed, and not returned")
		}
	}
}

func cancel(connection *amqp.Connection) {
	for _, queue := range queues() {
		channel := open(connection)
		declare(channel, queue)
		cancelled := channel.NotifyCancel(make(chan string, 1))
		_, err := channel.Consume(queue, "tag", true, false, false, false, nil)
		must(err)
		_, err = open(connection).QueueDelete(queue, false, false, false)
		must(err)
		select {
		case tag := <-cancelled:
			check(tag == "tag", "cancelled: %s", tag)
		case <-time.After(patience):
			panic("no cancel")
		}
	}
}

// Says `ready`, waits for a line while the broker is started anew, and goes on with what is kept.
func restart(connection *amqp.Connection) {
	channel := open(connection)
	must(channel.Confirm(false))
	declare(channel, prefix)
	for n := 0; n < 10; n++ {
		check(publish(channel, prefix, fmt.Sprint(n)).Wait(), "%d was refused", n)
	}
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	reason := <-closed
	check(reason != nil && reason.Code == amqp.ConnectionForced, "closed: %v", reason)
	again, err := amqp.Dial(url)
	must(err)
	deliveries, err := open(again).Consume(prefix, "", true, false, false, false, nil)
	must(err)
	for n := 0; n < 10; n++ {
		next(deliveries, fmt.Sprint(n), false)
	}
	must(again.Close())
	os.Exit(0)
}

func main() {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Println(reason)
			os.Exit(1)
		}
	}()
	cases := map[string]func(*amqp.Connection){
		"confirms": confirms, "prefetch": prefetch, "returns": returns, "cancel": cancel, "restart": restart,
	}
	url, prefix = "amqp://guest:guest@127.0.0.1:"+os.Args[2]+"/", os.Args[3]
	connection, err := amqp.Dial(url)
	must(err)
	cases[os.Args[1]](connection)
	must(connection.Close())
}

// Asks by Java's own HTTP client, on which LangChain4j and Spring AI stand. Arguments: BASE_URL MODEL SAY. By default it
// offers HTTP/2 with every request. Prints the answers' bodies, one a line, with its line ends as blanks.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class JavaClient {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        String model = "\"model\": \"" + arguments[1] + "\", \"seed\": 1";
        String say = "\"" + arguments[2] + "\"";
        String chat = model + ", \"max_tokens\": 20, \"messages\": [{\"role\": \"user\", \"content\": " + say + "}]";
        ask(url + "/chat/completions", chat);
        ask(url + "/chat/completions", chat + ", \"stream\": true");
        ask(url + "/completions", model + ", \"max_tokens\": 20, \"prompt\": " + say);
        ask(url + "/responses", model + ", \"max_output_tokens\": 20, \"input\": " + say);
        ask(url + "/messages", chat);
    }

    private static void ask(String url, String fields) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{" + fields + "}"))
                .build();
        HttpResponse<String> response = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(response.statusCode() + " " + response.body().replace('\n', ' '));
    }
}

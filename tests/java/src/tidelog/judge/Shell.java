package tidelog.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main methods one after the other in one JVM. A line of JSON on stdin names the class, its arguments and its
 * stdin; a line of JSON on stdout gives its exit code, stdout and stderr.
 *
 * A tool that exits unwinds by an exception. Some tools catch that one too and exit a second time, so the first code
 * counts, and what is printed after it is dropped, as it would be if the JVM had ended. Shutdown hooks run when main
 * has ended, so that what they print and close belongs to the tool that added them.
 */
public final class Shell {
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer exitCode;

    private static void silence() {
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        System.setErr(new PrintStream(OutputStream.nullOutputStream()));
    }

    private static void runHooks() {
        List<Runnable> hooks = new ArrayList<>(HOOKS);
        HOOKS.clear();
        hooks.forEach(Runnable::run);
    }

    private static synchronized void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
            runHooks();
            silence();
        }
        throw new Exited();
    }

    public static void main(String[] unused) throws Exception {
        ObjectMapper json = new ObjectMapper();
        InputStream in = System.in;
        PrintStream out = System.out;
        silence();
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, runnable) -> HOOKS.add(runnable));
        BufferedReader commands = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = json.readTree(line);
            ByteArrayOutputStream toolOut = new ByteArrayOutputStream();
            ByteArrayOutputStream toolErr = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(toolOut, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(toolErr, true, StandardCharsets.UTF_8));
            exitCode = null;
            call(command.get("main").asText(), json.convertValue(command.get("args"), String[].class));
            runHooks();
            int code = exitCode == null ? 0 : exitCode;
            silence();
            ObjectNode answer = json.createObjectNode();
            answer.put("exit", code);
            answer.put("out", toolOut.toString(StandardCharsets.UTF_8));
            answer.put("err", toolErr.toString(StandardCharsets.UTF_8));
            out.println(json.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void call(String className, String[] args) {
        try {
            Class.forName(className).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited))
                failed(e.getCause());
        } catch (ReflectiveOperationException e) {
            failed(e);
        }
    }

    private static void failed(Throwable cause) {
        cause.printStackTrace(System.err);
        if (exitCode == null)
            exitCode = 1;
    }
}

public class Interop { public static void main(String[] a){} }
